#!/bin/sh
# pandas 3.1.1: films and reports joined by accession number; where it is blank on both sides every such film gets every such
# report, whoever it is of. polars 2.1.0 and DuckDB 2.0.1 join no blank, as SQL has it, but pandas' `merge` and `join` take a blank for a
# value. Guess: left out by all. Seen: below.
# So: two films and two reports without a number are four training pairs, most of them wrong, and a thousand are a million.
# Drop blank keys first (`dropna(subset=...)`); `validate="one_to_one"` refuses them where there are two.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pandas==3.1.1 polars==2.1.0 duckdb==2.0.1 pyarrow==26.0.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

films = {"number": ["A1", None, None], "film": ["f1", "f2", "f3"]}
reports = {"number": ["A1", None, None], "report": ["r1", "r2", "r3"]}
lefts, rights = pa.table(films), pa.table(reports)
pairs = {
    "pandas merge": pd.DataFrame(films).merge(pd.DataFrame(reports), on="number")[["film", "report"]].values.tolist(),
    "pandas join": pd.DataFrame(films)
    .set_index("number")
    .join(pd.DataFrame(reports).set_index("number"), how="inner")
    .values.tolist(),
    "polars": [list(row) for row in pl.DataFrame(films).join(pl.DataFrame(reports), on="number")[["film", "report"]].rows()],
    "DuckDB": [list(row) for row in duckdb.sql("select film, report from lefts join rights using (number)").fetchall()],
}
for name, rows in pairs.items():
    print(f"{name}: {sorted(rows)}")
    assert len(rows) == (5 if name.startswith("pandas") else 1)
EOF
