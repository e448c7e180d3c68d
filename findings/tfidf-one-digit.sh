#!/bin/sh
# scikit-learn 1.9.1: `TfidfVectorizer` and `CountVectorizer` take words of two characters and more, and the point ends a
# word, so that no number below 10 is left: "nodule of 5 mm" and "nodule of 9 mm" have a cosine of 1, "3.5 cm" and "8.2
# cm" too, "5 mm" and "12 mm" one below it. `token_pattern=r"\S+"` keeps them. Guess: below 1. Seen: below. So:
# neighbours and duplicates found by it agree on all but the size of a small lesion, and a study that grew from 5 to
# 9 mm counts as unchanged.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
from sklearn.feature_extraction.text import TfidfVectorizer

PAIRS = (("5 mm", "9 mm"), ("3.5 cm", "8.2 cm"), ("5 mm", "12 mm"))
for options in ({}, {"token_pattern": r"\S+"}):
    for sizes in PAIRS:
        rows = TfidfVectorizer(**options).fit_transform([f"nodule of {size} in the left lung" for size in sizes])
        cosine = (rows @ rows.T)[0, 1]
        print(f"{options or 'by default'}: {sizes[0]} and {sizes[1]}: {cosine:.3f}")
        assert (cosine > 0.999999) == (not options and "12 mm" not in sizes)
PY
