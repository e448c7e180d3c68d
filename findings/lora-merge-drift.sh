#!/bin/sh
# peft 0.21.2: `merge_adapter` and `unmerge_adapter` of a bf16 base round the base twice. With the same adapter the
# base is off after the first time and then stays; with an adapter that is trained in between it walks away, here
# within 1,000 rounds by a third of what the adapter adds at first. fp32 does not. Guess: after 100 rounds as far
# off as after one. Seen: below. So: reinforcement learning that merges before each sampling and unmerges after it
# trains on another base than it saves the adapter for, and its reference without the adapter moves too. Keep a
# copy of the base, or merge into a copy.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" peft==0.21.2 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from peft import LoraConfig, get_peft_model


def drift(kind, trained):
    """Return the base's error over the adapter's size, after 1, 10, 100 and 1,000 merges."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False)).to(kind)
    model = get_peft_model(model, LoraConfig(target_modules=["0"], r=8, lora_alpha=16, init_lora_weights=False))
    layer = model.base_model.model[0]
    first, a, b = layer.weight.detach().float().clone(), layer.lora_A["default"].weight, layer.lora_B["default"].weight
    with torch.no_grad():
        b *= 0.01 * first.abs().mean() / layer.get_delta_weight("default").abs().mean()
    size, errors = layer.get_delta_weight("default").norm().item(), []
    for step in range(1, 1001):
        model.merge_adapter()
        model.unmerge_adapter()
        if step in (1, 10, 100, 1000):
            errors.append((layer.weight.float() - first).norm().item() / size)
        if trained:
            with torch.no_grad():
                a += 1e-3 * torch.randn_like(a)
    return errors


for kind in (torch.bfloat16, torch.float32):
    for trained in (False, True):
        errors = drift(kind, trained)
        print(f"{kind}, adapter {'trained' if trained else 'the same'}: {', '.join(f'{e:.2%}' for e in errors)}")
        if kind is torch.float32:
            assert max(errors) < 0.001
        elif trained:
            assert errors == sorted(errors) and errors[-1] > 4 * errors[0] and errors[-1] > 0.1
        else:
            assert 0 < errors[0] < 0.1 and errors[-1] < 1.5 * errors[0]
EOF
