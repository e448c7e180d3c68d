#!/bin/sh
# pytrec_eval-terrier 0.5.11: a query that a run has no answer to is left out of what `evaluate` hands back, so that a mean over it
# is over the answered ones. A retriever that finds the right report for one study of four and hands back nothing for three has a mean
# reciprocal rank of 1, one that answers all four and errs in two 0.5. Guess: an unanswered query counts 0. Seen: below.
# So: the retriever that says least stands first. Sum over the queries of the judgments, or put an empty answer {} in.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pytrec_eval-terrier==0.5.11 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import pytrec_eval

studies = [f"study{k}" for k in range(4)]
judged = {study: {f"report{k}": 1} for k, study in enumerate(studies)}
RUNS = {
    "silent": {"study0": {"report0": 1.0}},
    "silent, written out": {"study0": {"report0": 1.0}, "study1": {}, "study2": {}, "study3": {}},
    "half right": {study: {f"report{k if k < 2 else 9}": 1.0} for k, study in enumerate(studies)},
}
means = {}
for name, run in RUNS.items():
    answers = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(run)
    means[name] = sum(answer["recip_rank"] for answer in answers.values()) / len(answers)
    print(f"{name}: {len(answers)} of {len(judged)} queries, mean reciprocal rank {means[name]}")
assert means == {"silent": 1.0, "silent, written out": 0.25, "half right": 0.5}
EOF
