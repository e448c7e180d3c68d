#!/bin/sh
# torchmetrics 1.9.0: BootStrapper draws within each batch. With sampling_strategy="multinomial" and batches of
# one study each resample is the set itself, and the standard deviation 0; in one batch of 100 it is 0.047. The
# default, "poisson", does not depend on it. Guess: the same spread, whatever the batches. Seen: below. So: an
# interval of a validation that goes study by study is a point. Keep "poisson", or gather first.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from torchmetrics.classification import BinaryAccuracy
from torchmetrics.wrappers import BootStrapper

generator = torch.Generator().manual_seed(0)
scores = torch.rand(100, generator=generator)
truth = (torch.rand(100, generator=generator) < scores).int()
spread = {}
for strategy in ("poisson", "multinomial"):
    for size in (1, 2, 100):
        torch.manual_seed(0)
        metric = BootStrapper(BinaryAccuracy(), num_bootstraps=200, sampling_strategy=strategy)
        for start in range(0, 100, size):
            metric.update(scores[start : start + size], truth[start : start + size])
        spread[strategy, size] = metric.compute()["std"].item()
        print(f"{strategy}, batches of {size}: standard deviation {spread[strategy, size]:.4f}")
assert spread["multinomial", 1] < 1e-6 and 0.03 < spread["multinomial", 100]
assert all(0.03 < spread["poisson", size] < 0.07 for size in (1, 2, 100))
EOF
