#!/bin/sh
# scikit-learn 1.9.1: `label_ranking_average_precision_score` of a study without a finding is 1, whatever the model says
# of it, and so it is of one that has all. A model that ranks the right finding last of three has 0.33 on films with
# one finding, and 0.87 on a set of which four in five are normal; `coverage_error` has 0 for those. Guess: normal
# studies are left out, or count 0. Seen: below. So: the score tells first of all how many films are normal, and
# cannot be set beside one of another data set; take it of the studies that have a finding.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import numpy as np
from sklearn.metrics import coverage_error, label_ranking_average_precision_score

one, scores = np.array([[1, 0, 0]]), np.array([[0.1, 0.9, 0.3]])
outcome = {}
for normal in (0, 5, 20):
    labels = np.vstack([np.repeat(one, 5, 0), np.zeros((normal, 3), int)])
    ranked = np.repeat(scores, len(labels), 0)
    outcome[normal] = label_ranking_average_precision_score(labels, ranked)
    print(f"5 films with a finding ranked last, {normal} normal: {outcome[normal]:.3f}, "
          f"coverage error {coverage_error(labels, ranked):.1f}")
assert abs(outcome[0] - 1 / 3) < 1e-9 and abs(outcome[20] - 13 / 15) < 1e-9
assert label_ranking_average_precision_score(0 * one, scores) == 1
assert coverage_error(0 * one, scores) == 0
PY
