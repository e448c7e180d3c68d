#!/bin/sh
# pytrec-eval-terrier 0.5.11: two reports that a retriever scores alike are ranked by their ids, downwards, whatever
# order the run has. A system that scores all alike earns a precision at 1 of 0 where the right report is called "a"
# and of 1 where it is called "z". Guess: the run's order. Seen: below.
# So: retrieval of reports by a sparse score (templates tie by the dozen) is judged by how studies are named, and
# ids that grow with time favour the newest. Break ties before, by a draw, and take a mean over draws.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pytrec-eval-terrier==0.5.11 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import pytrec_eval


def at_one(right, run):
    """Return the precision at 1 and the reciprocal rank of a run in which `right` is the relevant report."""
    made = pytrec_eval.RelevanceEvaluator({"q": {right: 1}}, {"P_1", "recip_rank"}).evaluate({"q": run})["q"]
    return made["P_1"], made["recip_rank"]


first = at_one("a", {"a": 1.0, "m": 1.0, "z": 1.0})
last = at_one("z", {"z": 1.0, "m": 1.0, "a": 1.0})
behind = at_one("z", {"a": 1.0, "m": 1.0, "z": 1.0})
print("called a, listed first:", first, "called z, listed first:", last, "called z, listed last:", behind)
assert first == (0.0, 1 / 3) or abs(first[1] - 1 / 3) < 1e-6 and first[0] == 0.0
assert last == behind == (1.0, 1.0)
EOF
