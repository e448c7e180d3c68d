#!/bin/sh
# A CSV of study dates, "03/04/2021" and the like, no day above 12, read with dates to be found: pandas 3.1.1 says 4
# March, polars 2.1.0 and DuckDB 2.0.1 say 3 April. One row with a day of 13 turns DuckDB to the month first, and polars
# gives text back; pandas reads months first where the first row allows it. None says a word. Guess: one day by all. Seen:
# below. So: days between studies, ages and "the prior study" differ by the reader; state the format.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pandas==3.1.1 polars==2.1.0 duckdb==2.0.1 numpy==2.4.6
PYTHONPATH="$site" python3 -W error - "$site" <<'PY'
import pathlib
import sys

import duckdb
import pandas
import polars

path = pathlib.Path(sys.argv[1], "studies.csv")
READERS = {
    "pandas": lambda: pandas.read_csv(path, parse_dates=["date"])["date"][0],
    "polars": lambda: polars.read_csv(path, try_parse_dates=True)["date"][0],
    "duckdb": lambda: duckdb.sql(f"select date from read_csv('{path}')").fetchall()[0][0],
}
months = {}
for last in ("11/12/2021", "11/13/2021"):
    path.write_text(f"study,date\n1,03/04/2021\n2,05/06/2021\n3,{last}\n")
    for name, read in READERS.items():
        months[name, last] = getattr(read(), "month", None)
        print(f"last date {last}, {name}: 03/04/2021 is {read()!r}")
assert [months[name, "11/12/2021"] for name in READERS] == [3, 4, 4]
assert [months[name, "11/13/2021"] for name in READERS] == [3, None, 3]
PY
