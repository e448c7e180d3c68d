#!/bin/sh
# torch 2.13.0: `ReduceLROnPlateau` asks by default whether a loss is below best * (1 - 0.0001). Below zero that lies ABOVE
# the best: a loss that stays at -1 for ever is an improvement in every epoch, so is one that grows by 0.00005 each, and the rate
# never falls. A reward of -1 in mode "max" likewise. At +1 it falls each 6 epochs. Guess: it falls. Seen: below. So: with a
# loss such as minus a similarity or a log-likelihood as score the schedule does nothing. Set `threshold_mode="abs"`.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import torch


def rate(values, **settings):
    """Return the rate, 1 at first, behind the values."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5, **settings)
    for value in values:
        scheduler.step(value)
    return optimizer.param_groups[0]["lr"], scheduler.best


CASES = [
    ("loss 1", [1.0] * 50, {"mode": "min"}, False),
    ("loss -1", [-1.0] * 50, {"mode": "min"}, True),
    ("loss from -1 slowly up", [-1 + 5e-5 * k for k in range(50)], {"mode": "min"}, True),
    ("loss -1", [-1.0] * 50, {"mode": "min", "threshold_mode": "abs"}, False),
    ("reward -1", [-1.0] * 50, {"mode": "max"}, True),
    ("reward 1", [1.0] * 50, {"mode": "max"}, False),
]
for name, values, settings, stays in CASES:
    behind, best = rate(values, **settings)
    print(f"{name}, {settings}: rate {behind:.0e} behind 50 epochs, best {best:.4f}")
    assert (behind == 1) == stays
PY
