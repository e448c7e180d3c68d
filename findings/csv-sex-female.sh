#!/bin/sh
# DuckDB 2.0.1: a CSV whose column of sex is F in every row, as that of a set of mammographies or of one hospital ward, is
# read as BOOLEAN, and every patient's sex is false; gaps do not help. M is text. A column of "yes" and "no" is BOOLEAN too, one
# of "y" and "n" text. pandas 3.1.1, polars 2.1.0 and pyarrow 26.0.1 say text. Guess: text by all. Seen: below. So: a
# table of one sex does not join one of both, and a group "F" is empty. Give `types` or `all_varchar=true`.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" duckdb==2.0.1 pandas==3.1.1 polars==2.1.0 pyarrow==26.0.1 numpy==2.4.6
PYTHONPATH="$site" python3 - "$site" <<'PY'
import sys

import duckdb
import pandas as pd
import polars as pl
from pyarrow import csv

path = f"{sys.argv[1]}/patients.csv"
COLUMNS = {"all F": "FFFF", "F and gaps": ["F", "", "F", ""], "all M": "MMMM", "F and M": "FMFM",
           "yes and no": ["yes", "no", "no", "yes"], "y and n": "ynny"}
for name, values in COLUMNS.items():
    with open(path, "w") as file:
        file.write("study,sex\n" + "".join(f"s{k},{value}\n" for k, value in enumerate(values)))
    read = duckdb.sql(f"select sex from read_csv('{path}')")
    others = [str(column) for column in (pd.read_csv(path)["sex"].dtype, pl.read_csv(path)["sex"].dtype,
                                         csv.read_csv(path)["sex"].type)]
    print(f"{name}: DuckDB {read.types[0]} {[row[0] for row in read.fetchall()]}; pandas, polars, pyarrow {others}")
    assert (str(read.types[0]) == "BOOLEAN") == (name in ("all F", "F and gaps", "yes and no"))
    assert others == ["str", "String", "string"]
    assert str(duckdb.sql(f"select sex from read_csv('{path}', all_varchar=true)").types[0]) == "VARCHAR"
PY
