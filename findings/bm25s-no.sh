#!/bin/sh
# bm25s 0.3.16: `tokenize` drops English stop words unless told otherwise, and "no" and "not" are among them, so that
# a query for effusion and one for no effusion are the same query. The report that comes first for "effusion" is "no
# pleural effusion", for without its "no" it is a short one. One-letter words go too: "5 mm" is a query for mm. Guess:
# other ranks. Seen: below. So: examples retrieved for a positive finding are denials; say `stopwords=None`, and
# search findings, not words, where denial counts.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" bm25s==0.3.16 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import bm25s

REPORTS = ["small left pleural effusion", "no pleural effusion", "no pneumothorax", "heart size is normal",
           "large effusion is seen on the left", "heart is not enlarged"]


def first(query, stopwords):
    """Return the best report of a query and the scores of all."""
    words = {"stopwords": stopwords, "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(REPORTS, **words), show_progress=False)
    ranks, scores = index.retrieve(bm25s.tokenize([query], **words), k=len(REPORTS), show_progress=False)
    return REPORTS[ranks[0, 0]], scores[0].round(4).tolist()


for stopwords in ("english", None):
    answers = {query: first(query, stopwords) for query in ("effusion", "no effusion")}
    for query, (report, scores) in answers.items():
        print(f"stopwords={stopwords}, {query!r}: {report!r} first, scores {scores}")
    assert (answers["effusion"][1] == answers["no effusion"][1]) == (stopwords == "english")
    assert answers["no effusion"][0] == "no pleural effusion"
assert first("effusion", "english")[0] == "no pleural effusion"
assert bm25s.tokenize("5 mm", return_ids=False, show_progress=False) == [["mm"]]
PY
