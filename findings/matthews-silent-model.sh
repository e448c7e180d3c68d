#!/bin/sh
# torchmetrics 1.9.0: Matthews' coefficient of a finding that a model never names is far above 0. Of 100 studies with 5 effusions
# and no answer but "no" it is 0.41, where scikit-learn 1.9.1 has 0; with a single miss in 9 it is
# 0.82, and 1 where nobody has the finding. Guess: what scikit-learn says. Seen: below.
# So: a mean over rare findings rises with those that a model is silent about. Take scikit-learn's, or the metric's formula with 0
# for an empty row of the table.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import warnings

import torch
from sklearn.metrics import matthews_corrcoef as of_sklearn
from torchmetrics.functional.classification import binary_matthews_corrcoef as of_torchmetrics

warnings.simplefilter("ignore")


def both(positive, studies):
    truth = torch.tensor([1] * positive + [0] * (studies - positive))
    silent = torch.zeros_like(truth)
    return float(of_torchmetrics(silent, truth)), float(of_sklearn(truth, silent))


seen = {case: both(*case) for case in ((5, 100), (1, 9), (0, 9))}
for (positive, studies), (one, other) in seen.items():
    print(f"{positive} of {studies} have it, none is named: torchmetrics {one:.3f}, scikit-learn {other:.3f}")
assert all(other == 0 for _, other in seen.values())
assert 0.4 < seen[5, 100][0] < 0.42 and 0.8 < seen[1, 9][0] < 0.85 and seen[0, 9][0] == 1
EOF
