#!/bin/sh
# Three runs with an F1 of 0.3, NaN and 0.7. DuckDB 2.0.1's `arg_max`, `max` and `order by ... desc` name the NaN, for
# it is the greatest number there; polars 2.1.0's `sort`, `sort_by` and `top_k` too, its `max` and `arg_max` do not;
# pandas 3.1.1 and pyarrow 26.0.1 never do. Guess: not the NaN, by all. Seen: below. So: the best checkpoint of a
# table of runs is the one whose score is undefined, by one call and not by another of the same package. Filter
# `is_nan` first, not `is_null`: a NaN is no null.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" duckdb==2.0.1 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import duckdb
import polars as pl

runs = pl.DataFrame({"run": ["low", "undefined", "high"], "f1": [0.3, float("nan"), 0.7]})
table, frame = runs.to_arrow(), runs.to_pandas()
best = {
    "duckdb arg_max": duckdb.sql("select arg_max(run, f1) from runs").fetchall()[0][0],
    "duckdb order by": duckdb.sql("select run from runs order by f1 desc limit 1").fetchall()[0][0],
    "polars sort": runs.sort("f1", descending=True)["run"][0],
    "polars top_k": runs.top_k(1, by="f1")["run"][0],
    "polars sort_by": runs.select(pl.col("run").sort_by("f1", descending=True).first()).item(),
    "polars arg_max": runs["run"][runs["f1"].arg_max()],
    "pandas sort_values": frame.sort_values("f1", ascending=False)["run"].iloc[0],
    "pandas idxmax": frame["run"][frame["f1"].idxmax()],
    "pyarrow sort_by": table.sort_by([("f1", "descending")])["run"][0].as_py(),
}
for name, run in best.items():
    print(f"{name}: {run}")
names = {name for name, run in best.items() if run == "undefined"}
assert names == {"duckdb arg_max", "duckdb order by", "polars sort", "polars top_k", "polars sort_by"}, names
assert set(best.values()) == {"undefined", "high"} and runs.filter(pl.col("f1").is_null()).is_empty()
EOF
