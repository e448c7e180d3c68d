#!/bin/sh
# DuckDB 2.0.1: `jaccard` of two texts is of their letters, each counted once, not of words. Two reports without a common finding
# have 0.7, in small letters 0.9, for any two lines have nearly the whole alphabet; "no edema" and "edema on" have 1.
# Guess: low, where no word is common. Seen: below; by words they have less than 0.1.
# So: a search for near duplicates by it, above 0.8 of lower-cased reports, throws out unlike ones, and with them rare findings.
# Use list_intersect and list_distinct of split words.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" duckdb==2.0.1
PYTHONPATH="$site" python3 - <<'EOF'
import duckdb

first = ("Large left pleural effusion with adjacent atelectasis. The heart is enlarged, vascular "
         "markings are cephalized. Sternotomy wires look unbroken.")
second = ("No focal airspace opacity. Displaced fracture of the right sixth rib behind, tiny apical "
          "pneumothorax. Cardiomediastinal silhouette unchanged, hilar vessels sharp. Follow by week.")


def letters(a, b):
    return duckdb.execute("select jaccard(?, ?)", [a, b]).fetchone()[0]


def words(a, b):
    a, b = set(a.lower().split()), set(b.lower().split())
    return len(a & b) / len(a | b)


small = letters(first.lower(), second.lower())
print(f"two unlike reports: {letters(first, second):.2f} by jaccard, {small:.2f} in small letters, "
      f"{words(first, second):.2f} by words")
print(f"'no edema', 'edema on': {letters('no edema', 'edema on')}")
assert letters(first, second) > 0.65 and small > 0.8 and words(first, second) < 0.1
assert letters(first, second) == len(set(first) & set(second)) / len(set(first) | set(second))
assert letters("no edema", "edema on") == 1
EOF
