#!/bin/sh
# torchmetrics 1.9.0 puts a batch of logits through a sigmoid where one of them lies outside 0 to 1, batch by
# batch. A batch whose logits all lie inside stays as it is, and the AUROC of the epoch is that of logits and
# probabilities mixed. Guess: an AUROC knows ranks alone, so that batches do not matter. Seen: 0.75 for 1. So: an
# AUROC from `update` changes with the batch size and the order of studies. Pass probabilities.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, MultilabelAUROC

logits = torch.tensor([1.5, -2.0, 0.9, 0.95])
truth = torch.tensor([1, 0, 0, 1])
values = {}
for name, make, shape in (("AUROC", BinaryAUROC, (-1,)), ("average precision", BinaryAveragePrecision, (-1,)),
                          ("AUROC of one label of two", lambda: MultilabelAUROC(2), (-1, 2))):
    for size in (4, 2):
        for kind, scores in (("logits", logits), ("probabilities", logits.sigmoid())):
            metric = make()
            for start in range(0, 4, size):
                batch = scores[start : start + size], truth[start : start + size]
                metric.update(*[one if shape == (-1,) else one[:, None].repeat(1, 2) for one in batch])
            values[name, size, kind] = round(metric.compute().item(), 4)
            print(f"{name}, {kind} in batches of {size}: {values[name, size, kind]}")
for (name, size, kind), value in values.items():
    assert (value == 1) == (size == 4 or kind == "probabilities"), name
EOF
