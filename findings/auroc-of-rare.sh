#!/bin/sh
# torchmetrics 1.9.0: `BinaryAUROC(thresholds=100)`, which saves memory, puts its thresholds evenly from 0 to 1. A finding of
# one film in a hundred whose probabilities lie below 0.03, as a calibrated model's do, falls between the first thresholds: the
# AUROC is 0.52 for 0.91, the average precision 0.04 for 0.22. Guess: within 0.02. Seen: below. So: of two models the
# one that is calibrated looks like chance, and only on the rare findings. Leave `thresholds` out, or give them as
# quantiles of the scores.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'PY'
import numpy as np
import torch
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

generator = np.random.default_rng(0)
positive = generator.random(20000) < 0.01
scores = torch.tensor(1 / (1 + np.exp(8.5 - 2 * positive - generator.normal(size=20000))))
labels = torch.tensor(positive).int()
quantiles = torch.quantile(scores, torch.linspace(0, 1, 100, dtype=scores.dtype))
print(f"greatest probability {scores.max():.3f}")
for metric, exact, coarse in ((BinaryAUROC, 0.91, 0.52), (BinaryAveragePrecision, 0.22, 0.04)):
    values = [metric(thresholds=thresholds)(scores, labels).item() for thresholds in (None, 100, quantiles)]
    print("{}: exact {:.2f}, 100 thresholds {:.2f}, at quantiles {:.2f}".format(metric.__name__, *values))
    assert abs(values[0] - exact) < 0.01 and abs(values[1] - coarse) < 0.01
    assert metric is BinaryAveragePrecision or abs(values[2] - exact) < 0.01
PY
