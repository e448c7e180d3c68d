#!/bin/sh
# PEFT 0.21.2: DoRA divides by the length of each row of W + BA, and B begins at 0. A layer with one row of zeros (a
# pruned or padded output, a gate that begins at nothing) puts NaN into that output from the first forward; without
# DoRA all is finite. Guess: finite outputs and gradients. Seen: below.
# So: the loss is NaN before anything was learnt. Look for such rows before `use_dora`.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" peft==0.21.2 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from peft import LoraConfig, get_peft_model


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(x)


for dora in (True, False):
    torch.manual_seed(0)
    model = Gated()
    with torch.no_grad():
        model.gate.weight[3] = 0
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["gate"], use_dora=dora))
    outputs = adapted(torch.randn(5, 8))
    outputs.square().mean().backward()
    trained = [p.grad for p in adapted.parameters() if p.requires_grad]
    print(f"dora {dora}: outputs {outputs[0].tolist()}; finite gradients {[bool(g.isfinite().all()) for g in trained]}")
    assert outputs[:, :3].isfinite().all()
    assert bool(outputs[:, 3].isnan().all()) == dora
    assert all(g.isfinite().all() for g in trained) != dora
EOF
