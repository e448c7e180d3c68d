#!/bin/sh
# rank-bm25 0.2.2, `BM25Okapi`: a word that stands in half of the reports weighs nothing, one that stands in
# more is given a quarter of the mean weight. A query for "effusion", which three of six reports have, scores 0 for
# all; "the", in all six, has a weight and ranks reports by their length. bm25s 0.3.16 ranks those with the word first.
# Guess: a report with the word stands before one without. Seen: below. So: with
# normal reports by the thousand, the findings that every report speaks of are what such a retrieval does not see.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" rank-bm25==0.2.2 bm25s==0.3.16 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import bm25s
from rank_bm25 import BM25Okapi

REPORTS = ["the heart is normal", "the lungs are clear of consolidation", "the hila are normal",
           "the left effusion is small", "the effusion is unchanged", "the right effusion is large"]
words = [report.split() for report in REPORTS]
okapi = BM25Okapi(words)
other = bm25s.BM25()
other.index(words, show_progress=False)
for query in ("effusion", "the", "heart"):
    one, theirs = okapi.get_scores([query]), other.get_scores([query])
    print(f"{query}: rank-bm25 {one.round(3).tolist()}, bm25s {theirs.round(3).tolist()}")
    assert all((score > 0) == (query in words[row]) for row, score in enumerate(theirs))
    assert (query == "effusion") == (not one.any())
assert okapi.idf["the"] > okapi.idf["effusion"] == 0
EOF
