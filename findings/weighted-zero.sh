#!/bin/sh
# torch 2.13.0 on a CPU: `WeightedRandomSampler(replacement=False)`, and `multinomial` beneath it, fill up with items
# of weight 0 where more are asked for than have a weight above 0: of eight studies with five left out (weight 0)
# five draws give the three and two that were left out. NumPy 2.4.6 refuses. Guess: refused. Seen: below. So: a
# curriculum or a filter that sets weights to 0 trains on what it left out as soon as it leaves out too much. Draw
# from the ids whose weight is above 0.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
import torch
from torch.utils.data import WeightedRandomSampler

weights = [1.0, 1.0, 1.0, 0, 0, 0, 0, 0]
torch.manual_seed(0)
for _ in range(3):
    drawn = list(WeightedRandomSampler(weights, 5, replacement=False))
    print(f"drawn without replacement: {drawn}; weight 0: {[k for k in drawn if weights[k] == 0]}")
    assert sorted(drawn)[:3] == [0, 1, 2] and sum(weights[k] == 0 for k in drawn) == 2
assert all(weights[k] for k in WeightedRandomSampler(weights, 100, replacement=True))
try:
    np.random.default_rng(0).choice(8, 5, replace=False, p=np.array(weights) / 3)
except ValueError as error:
    print(f"numpy: {error}")
else:
    raise SystemExit("numpy draws them too")
EOF
