#!/bin/sh
# torchmetrics 1.9.0: a MetricCollection lets metrics share their counts for good where the counts are equal after
# the first batch. F1 at a threshold of 0.5 and F1 at 0.3 are, whenever no score of that batch lies between. From
# then on one of them has the other's value. Guess: both have the values that they have alone. Seen: 0.889 for
# 0.667. So: thresholds compared in one collection may be one threshold, by what the first batch held. Pass
# compute_groups=False.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryF1Score

BATCHES = [(torch.tensor([0.9, 0.1, 0.8]), torch.tensor([1, 0, 1])),
           (torch.tensor([0.4, 0.35, 0.45]), torch.tensor([1, 1, 0]))]


def values(batches, **options):
    """Return F1 at both thresholds from one collection."""
    metrics = {"at_50": BinaryF1Score(threshold=0.5), "at_30": BinaryF1Score(threshold=0.3)}
    collection = MetricCollection(metrics, **options)
    for scores, truth in batches:
        collection.update(scores, truth)
    return {name: round(value.item(), 3) for name, value in sorted(collection.compute().items())}


together, apart = values(BATCHES), values(BATCHES, compute_groups=False)
turned = values(BATCHES[::-1])
print("by default:", together)
print("compute_groups=False:", apart)
print("by default, batches in the other order:", turned)
assert apart == turned == {"at_30": 0.889, "at_50": 0.667}
assert together == {"at_30": 0.889, "at_50": 0.889}
EOF
