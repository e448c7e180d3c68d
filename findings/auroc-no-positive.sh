#!/bin/sh
# Fourteen findings, a perfect model, one finding that no study has: torchmetrics 1.9.0's macro AUROC is 0.929, for it
# counts the finding as 0 (its average precision likewise), with a warning; torcheval 0.0.7 gives the finding 0.5,
# scikit-learn 1.9.1 NaN. One that every study has is 0 too. "weighted" leaves it out. Guess: left out, 1. Seen: below.
# So: a macro AUROC on a small test split, or on a fold, falls by a 14th for each finding that is missing there, and
# by how many are missing two packages differ. Take the mean over findings that have both kinds.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torcheval==0.0.7 torch==2.13.0 scikit-learn==1.9.1 \
    numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import math

import torch
from sklearn.metrics import roc_auc_score
from torcheval.metrics.functional import binary_auroc
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision

labels = (torch.rand(50, 14, generator=torch.Generator().manual_seed(0)) < 0.3).int()
assert 0 < labels.sum(0).min() and labels.sum(0).max() < 50
for stands_in in (0, 1):
    labels[:, 5] = stands_in
    scores = labels * 0.8 + 0.1
    macro = MultilabelAUROC(14, average="macro")(scores, labels).item()
    weighted = MultilabelAUROC(14, average="weighted")(scores, labels).item()
    precision = MultilabelAveragePrecision(14, average="macro")(scores, labels).item()
    other = binary_auroc(scores[:, 5], labels[:, 5]).item()
    print(f"all {stands_in}: AUROC macro {macro:.4f}, weighted {weighted:.4f}; average precision {precision:.4f}; "
          f"torcheval of the finding {other}")
    assert abs(macro - 13 / 14) < 1e-6 and other == 0.5
    assert abs(precision - (1 if stands_in else 13 / 14)) < 1e-6
    assert math.isnan(roc_auc_score(labels.numpy(), scores.numpy(), average="macro"))
EOF
