#!/bin/sh
# torch 2.13.0: `CosineAnnealingLR.load_state_dict` takes T_max from the state, not from the constructor. A run of 100
# steps that stopped at 80 and goes on with T_max=200 falls to 0 at step 100 and climbs back to the full rate at 200. A
# LambdaLR, which transformers' schedules are, keeps the new length: its function is not in the state. Guess: 0
# at 200. Seen: below. So: who trains longer than was planned ends at the highest rate of all, or jumps; set
# `scheduler.T_max` behind the load, and look at the rate.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'PY'
import math

import torch

SCHEDULES = {
    "CosineAnnealingLR": torch.optim.lr_scheduler.CosineAnnealingLR,
    "LambdaLR": lambda optimizer, length: torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / length)) / 2),
}


def rates(schedule, length, steps, before=None):
    """Return the rate behind each step, and the states of optimizer and schedule."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = SCHEDULES[schedule](optimizer, length)
    if before is not None:
        optimizer.load_state_dict(before[0])
        scheduler.load_state_dict(before[1])
    passed = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        passed.append(scheduler.get_last_lr()[0])
    return passed, (optimizer.state_dict(), scheduler.state_dict())


for name in SCHEDULES:
    _, state = rates(name, 100, 80)
    resumed, _ = rates(name, 200, 120, state)
    print(f"{name}: step 80 {state[0]['param_groups'][0]['lr']:.3f}, 100 {resumed[19]:.3f}, 200 {resumed[-1]:.3f}")
    assert abs(resumed[19] - (0 if name == "CosineAnnealingLR" else 0.5)) < 1e-6
    assert abs(resumed[-1] - (1 if name == "CosineAnnealingLR" else 0)) < 1e-6
PY
