#!/bin/sh
# MONAI 1.6.1: a model that finds all lesions and nothing else has an FROC score below 1: 0.67 of three lesions, 0 of one. The curve's
# points are taken above each probability, so that the least sure one never counts; a false alarm of low probability
# added, the score is 1. Guess: 1 for the perfect model. Seen: below.
# So: a false alarm raises the score, and on few lesions it is the difference of two models. Add one of probability
# 0 (and of nobody) to both before the curve is drawn, or write the curve out with `>=`.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" monai==1.6.1 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
from monai.metrics import compute_froc_curve_data, compute_froc_score


def score(false_alarms, hits, lesions, films=3):
    curve = compute_froc_curve_data(np.array(false_alarms), np.array(hits), lesions, films)
    return round(float(compute_froc_score(*curve)), 2)


CASES = {
    "three of three lesions, no false alarm": (([], [0.9, 0.8, 0.7], 3), 0.67),
    "three of three, a false alarm at 0.1": (([0.1], [0.9, 0.8, 0.7], 3), 1.0),
    "the one lesion, no false alarm": (([], [0.9], 1), 0.0),
    "the one lesion, a false alarm at 0.1": (([0.1], [0.9], 1), 1.0),
}
for name, (case, expected) in CASES.items():
    print(f"{name}: {score(*case)}")
    assert score(*case) == expected
EOF
