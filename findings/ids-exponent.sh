#!/bin/sh
# An accession number such as 12E345 is read as 12 times ten to the 345, infinity, where the whole column looks like
# numbers: by the CSV readers of pandas 3.1.1, polars 2.1.0, pyarrow 26.0.1 and DuckDB 2.0.1, and by pandas'
# `read_json`, where it stands in quotes and JSON says that it is text. Two studies become one. DuckDB keeps "0012",
# the others make it 12, `read_json` too. Guess: text by all. Seen: below. So: a small file, or one chunk of a
# large one, joins the wrong reports to the films. Name the type of the column (dtype, schema_overrides, types).
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" duckdb==2.0.1 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
cd "$site"
PYTHONPATH="$site" python3 - <<'EOF'
import json

import duckdb
import pandas as pd
import polars as pl
import pyarrow.csv

READERS = {
    "pandas CSV": lambda: pd.read_csv("a.csv")["id"].tolist(),
    "polars CSV": lambda: pl.read_csv("a.csv")["id"].to_list(),
    "pyarrow CSV": lambda: pyarrow.csv.read_csv("a.csv")["id"].to_pylist(),
    "DuckDB CSV": lambda: [row[0] for row in duckdb.sql("select id from read_csv('a.csv')").fetchall()],
    "pandas JSON": lambda: pd.read_json("a.jsonl", lines=True)["id"].tolist(),
    "polars JSON": lambda: pl.read_ndjson("a.jsonl")["id"].to_list(),
    "DuckDB JSON": lambda: [row[0] for row in duckdb.sql("select id from read_json('a.jsonl')").fetchall()],
}
for ids in (["12E345", "12E346"], ["0012", "0034"]):
    with open("a.csv", "w") as table, open("a.jsonl", "w") as lines:
        table.write("id,report\n" + "".join(f"{name},Clear lungs.\n" for name in ids))
        lines.write("".join(json.dumps({"id": name}) + "\n" for name in ids))
    kept = {name for name, read in READERS.items() if read() == ids}
    for name, read in READERS.items():
        print(f"{name}: {ids} is {read()}")
    if ids[0] == "0012":
        assert kept == {"DuckDB CSV", "polars JSON", "DuckDB JSON"}, kept
    else:
        assert kept == {"polars JSON", "DuckDB JSON"}, kept
        assert all(len(set(read())) == 1 for name, read in READERS.items() if name not in kept)
EOF
