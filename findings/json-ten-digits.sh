#!/bin/sh
# pandas 3.1.1: `to_json` writes ten digits behind the point, not ten that count: a p of 3e-12 is written 0.0, a learning
# rate of 1.23456e-7 as 0.0000001235, and two log probabilities that differ in the 11th digit are one. `to_csv` and polars
# 2.1.0's `write_json` keep all; `double_precision=15`, the most that is taken, still makes 3e-17 a 0. Guess: the same
# number comes back. Seen: below. So: a table of p values, gradients or rates that passed through JSON has zeros,
# and a correction for many tests counts them as certain.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pandas==3.1.1 polars==2.1.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import io
import json

import pandas
import polars

values = [3e-12, 1.23456e-7, 0.1234567890123456, 3e-17]
frame = pandas.DataFrame({"p": values})
rows = {
    "to_json": [row["p"] for row in json.loads(frame.to_json(orient="records"))],
    "to_json, double_precision=15": [row["p"] for row in json.loads(frame.to_json(orient="records", double_precision=15))],
    "polars": [row["p"] for row in json.loads(polars.DataFrame({"p": values}).write_json())],
    "to_csv": pandas.read_csv(io.StringIO(frame.to_csv()), float_precision="round_trip")["p"].tolist(),
}
for name, numbers in rows.items():
    print(f"{name}: {numbers}")
assert rows["to_json"] == [0, 1.235e-7, 0.123456789, 0]
assert rows["to_json, double_precision=15"][0] == 3e-12 and rows["to_json, double_precision=15"][3] == 0
assert rows["polars"] == rows["to_csv"] == values
PY
