#!/bin/sh
# torch-ema 0.3: an average with a decay of 0.999 has, 10 steps behind, 0.9999 of the new weights and not 0.01,
# since the decay begins at 2 in 11 and rises as (1 + n) / (10 + n) up to step 8,990. Guess: one minus 0.999 to the
# tenth. Seen: below.
# So: in a run of a few hundred steps, as RL of reports has, the "average" is the last weights almost, and a
# comparison of decays compares nothing: 0.99 and 0.9999 are one number. `use_num_updates=False` leaves the decay as
# it is named.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch-ema==0.3 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import torch
from torch_ema import ExponentialMovingAverage


def share(decay, steps, **options):
    """Return how much of the weights from the first step on the average has."""
    weight = torch.nn.Parameter(torch.zeros(1))
    average = ExponentialMovingAverage([weight], decay, **options)
    weight.data.fill_(1)
    for _ in range(steps):
        average.update()
    return float(average.shadow_params[0])


by_default, as_named = share(0.999, 10), share(0.999, 10, use_num_updates=False)
print(f"10 steps at 0.999: {by_default:.4f}, as it is named {as_named:.4f}")
print(f"50 steps at 0.99 and 0.9999: {share(0.99, 50):.6f}, {share(0.9999, 50):.6f}")
assert by_default > 0.9999 and abs(as_named - (1 - 0.999**10)) < 1e-6
assert share(0.99, 50) == share(0.9999, 50)
EOF
