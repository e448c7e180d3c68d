#!/bin/sh
# torch 2.13.0 on a CPU: an EMA of bf16 weights with a decay of 0.999 (`AveragedModel`, `get_ema_multi_avg_fn`) goes
# from 0 towards 1 and stands still at 0.25, where a thousandth of the rest is less than half a step of bf16; by
# `get_ema_avg_fn`, which is to be the same average, it stands still at 0.5. fp32 arrives. Guess: above 0.9. Seen:
# below. So: the averaged policy, or a reference that follows it, is a model of the first steps, and which one
# depends on the function. Average in fp32.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

reached = {}
for kind in (torch.bfloat16, torch.float32):
    for name, how in (("multi", {"multi_avg_fn": get_ema_multi_avg_fn(0.999)}),
                      ("single", {"avg_fn": get_ema_avg_fn(0.999)})):
        model = torch.nn.Linear(4, 4, bias=False).to(kind)
        torch.nn.init.zeros_(model.weight)
        averaged = AveragedModel(model, **how)
        averaged.update_parameters(model)  # the first one copies
        torch.nn.init.ones_(model.weight)
        for _ in range(10_000):
            averaged.update_parameters(model)
        reached[kind, name] = averaged.module.weight[0, 0].item()
        print(f"{kind}, {name}: {reached[kind, name]:.4f} of 1")
assert reached[torch.bfloat16, "multi"] == 0.25 and reached[torch.bfloat16, "single"] == 0.5
assert all(reached[torch.float32, name] > 0.999 for name in ("multi", "single"))
EOF
