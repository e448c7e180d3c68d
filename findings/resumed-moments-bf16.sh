#!/bin/sh
# torch 2.13.0: `Optimizer.load_state_dict` casts every moment to its parameter's dtype. Optimizers that keep fp32 moments of
# bf16 weights, as transformers 5.23.0's Adafactor and came-pytorch 0.1.3's CAME do, get them back rounded to bf16; Adafactor
# goes on in fp32 from there, so that its dtype shows nothing, CAME stays in bf16. Guess: a resumed run ends where an
# unbroken one does. Seen: below; with the moments set by hand behind the load it does. So: a run that is stopped and
# resumed is another run, by the optimizer and not by its seed. Put the saved moments back into `optimizer.state`.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 came-pytorch==0.1.3 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'PY'
import copy

import torch
from came_pytorch import CAME
from transformers import Adafactor

OPTIMIZERS = {
    "Adafactor": lambda weight: Adafactor([weight], lr=1e-2, relative_step=False, scale_parameter=False, beta1=0.9),
    "CAME": lambda weight: CAME([weight], lr=1e-3, betas=(0.9, 0.999, 0.9999)),
}


def dtypes(optimizer):
    return sorted({str(value.dtype) for key, value in optimizer.state_dict()["state"][0].items() if key.startswith("exp")})


def run(make, weight, optimizer, steps):
    for k in steps:
        noise = torch.randn(64, 64, generator=torch.Generator().manual_seed(k))
        weight.grad = (weight.detach().float() + 0.01 * noise).bfloat16()
        optimizer.step()


def resumed(make, weight, optimizer, by_hand):
    """Return a copy of the weight and an optimizer of it that has loaded the state."""
    again = torch.nn.Parameter(weight.detach().clone())
    other = make(again)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    if by_hand:
        other.state[again] = copy.deepcopy(optimizer.state[weight])
    return again, other


for name, make in OPTIMIZERS.items():
    torch.manual_seed(0)
    weight = torch.nn.Parameter((0.02 * torch.randn(64, 64)).bfloat16())
    optimizer = make(weight)
    run(make, weight, optimizer, range(50))
    others = {by_hand: resumed(make, weight, optimizer, by_hand) for by_hand in (False, True)}
    print(f"{name}: moments {dtypes(optimizer)}, behind the load {dtypes(others[False][1])}")
    assert dtypes(optimizer) == ["torch.float32"] and dtypes(others[False][1]) == ["torch.bfloat16"]
    run(make, weight, optimizer, range(50, 100))
    for by_hand, (again, other) in others.items():
        run(make, again, other, range(50, 100))
        share = (again != weight).float().mean().item()
        print(f"    moments put back by hand {by_hand}: {share:.1%} of the weights are others 50 steps on; {dtypes(other)}")
        assert (share == 0) == by_hand
PY
