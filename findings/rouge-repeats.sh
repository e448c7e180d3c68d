#!/bin/sh
# rouge 1.0.1 counts each n-gram of a text once, however often it stands there: a report that says its reference
# three times over has a ROUGE-1 and a ROUGE-L of 1. rouge-score 0.1.2 gives 0.5. Guess: precision 1/3 by both.
# Seen: below. So: a policy that repeats itself loses nothing by this package, and rows made by it are not those
# of rouge-score; as a reward it pays for the loop that a length limit then cuts.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" rouge==1.0.1 rouge-score==0.1.2
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer

reference = "no edema is seen"
f1 = {}
for times in (1, 2, 3, 10):
    report = " ".join([reference] * times)
    by_rouge = Rouge().get_scores(report, reference)[0]
    by_rouge_score = RougeScorer(["rouge1", "rougeL"]).score(reference, report)
    f1[times] = [by_rouge["rouge-1"]["f"], by_rouge["rouge-l"]["f"],
                 by_rouge_score["rouge1"].fmeasure, by_rouge_score["rougeL"].fmeasure]
    print(f"{times} times: rouge 1 and L {f1[times][:2]}, rouge-score 1 and L {f1[times][2:]}")
assert all(value > 0.999 for times in f1 for value in f1[times][:2])
assert f1[3][2:] == [0.5, 0.5] and f1[10][2] < 0.2
EOF
