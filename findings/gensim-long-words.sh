#!/bin/sh
# gensim 4.4.0: `simple_preprocess` leaves out every word of more than 15 letters, or one, without a word said:
# "hydropneumothorax", "cardiomediastinal" and "bronchopneumonia" are gone, "pneumothorax" stays.
# Guess: the words stay. Seen: below.
# So: a topic model or embedding of reports never sees the findings with the longest names. Give `max_len=30`.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" gensim==4.4.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from gensim.utils import simple_preprocess

REPORT = "Left hydropneumothorax. Normal cardiomediastinal silhouette. No bronchopneumonia or pneumothorax."
left, whole = simple_preprocess(REPORT), simple_preprocess(REPORT, max_len=30)
print(left, "without:", sorted({*whole} - {*left}))
assert {*whole} - {*left} == {"hydropneumothorax", "cardiomediastinal", "bronchopneumonia"}
assert "pneumothorax" in left
EOF
