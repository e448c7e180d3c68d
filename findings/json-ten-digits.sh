#!/bin/sh
# pandas 3.1.1: `to_json` writes ten digits behind the point, not ten that count: a p of 3e-12 is written 0.0, a rate of
# 1.23456e-7 as 1.235e-07. Below 1e-16 it changes to powers of ten, so that 3e-17 stays what it is and the larger 3e-12
# is 0. `double_precision=15` keeps both; `to_csv` and polars 2.1.0's `write_json` keep all digits. Guess: the same number
# comes back. Seen: below. So: p values, gradients and log probabilities that passed through JSON are zeros in between,
# out of order, and a correction for many tests counts them as certain.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pandas==3.1.1 polars==2.1.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import json

import pandas
import polars

values = [3e-12, 1.23456e-7, 0.1234567890123456, 3e-17]
frame = pandas.DataFrame({"p": values})
rows = {
    "to_json": [row["p"] for row in json.loads(frame.to_json(orient="records"))],
    "to_json, double_precision=15": [row["p"] for row in json.loads(frame.to_json(orient="records", double_precision=15))],
    "polars": [row["p"] for row in json.loads(polars.DataFrame({"p": values}).write_json())],
    "to_csv": [float(line.split(",")[1]) for line in frame.to_csv().splitlines()[1:]],
}
for name, numbers in rows.items():
    print(f"{name}: {numbers}")
assert rows["to_json"] == [0, 1.235e-7, 0.123456789, 3e-17]
assert rows["to_json, double_precision=15"] == [3e-12, 1.23456e-7, 0.123456789012346, 3e-17]
assert rows["polars"] == rows["to_csv"] == values
PY
