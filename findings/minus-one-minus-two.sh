#!/bin/sh
# editdistance 0.8.1, rapidfuzz 3.14.6: the edit distance of two studies' labels [0, -1, 1] and [0, -2, 1] is 0 by the first, and
# by both where the labels are floats or stand in a tuple with their finding. Items are compared by their `hash`, and
# Python has one for -1 and -2; rapidfuzz sees to whole numbers alone. Guess: 1. Seen: below.
# So: -1 (uncertain) and -2 (blank, as some tables have it) are one, and a model that mixes them up has no errors.
# Give them names, or 3 and 4.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" editdistance==0.8.1 rapidfuzz==3.14.6 textdistance==4.6.3
PYTHONPATH="$site" python3 - <<'EOF'
import editdistance
import textdistance
from rapidfuzz.distance import Levenshtein

DISTANCES = {
    "editdistance": editdistance.eval,
    "rapidfuzz": Levenshtein.distance,
    "textdistance": textdistance.Levenshtein(external=False).distance,
}
ROWS = {
    "whole numbers": ([0, -1, 1], [0, -2, 1]),
    "floats": ([0.0, -1.0, 1.0], [0.0, -2.0, 1.0]),
    "pairs": ([("edema", -1)], [("edema", -2)]),
    "names": (["no", "uncertain", "yes"], ["no", "blank", "yes"]),
}
for rows, (one, other) in ROWS.items():
    seen = {name: int(distance(one, other)) for name, distance in DISTANCES.items()}
    print(f"{rows}: {seen}")
    assert seen["textdistance"] == 1
    assert seen["editdistance"] == (rows == "names")
    assert seen["rapidfuzz"] == (rows in ("whole numbers", "names"))
EOF
