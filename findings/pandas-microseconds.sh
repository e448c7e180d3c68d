#!/bin/sh
# pandas 3.1.1: `to_datetime` of texts gives datetime64[us], where pandas 2 gave [ns]. `astype("int64")` counts what
# the unit is, so that code which divides by the nanoseconds of a day (8.64e13) finds 0.002 days between two studies
# two days apart, a thousandth, without a warning. Subtraction with `.dt.days` is right in both. Guess:
# nanoseconds. Seen: below. So: readers of PadChest's or another set's study dates that make an offset in days
# put a patient's whole history into one day; subtract dates, or write `.astype("datetime64[ns]")` first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pandas==3.1.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import pandas as pd

DAY = 24 * 3600 * 10**9
texts = pd.Series(["20100101", "20100103"])
dates = pd.to_datetime(texts, format="%Y%m%d")
whole = dates.astype("int64").diff()[1] / DAY
right = dates.astype("datetime64[ns]").astype("int64").diff()[1] / DAY
days = dates.diff().dt.days[1]
print(f"{dates.dtype}: {whole} days by int64 over nanoseconds, {right} as [ns], {days} by .dt.days")
assert str(dates.dtype) == "datetime64[us]" and whole == 0.002 and right == days == 2
PY
