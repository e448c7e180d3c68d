#!/bin/sh
# torch 2.13.0 on a CPU seeds its generator with the low 32 bits of the seed, though it takes and reports 64: 1,
# 2**32 + 1 and (7 << 32) + 1 give the same numbers. NumPy 2.4.6's generator gives others. Guess: other numbers.
# Seen: below. So: seeds put together as (rank << 32) + step, or (run << 32) + epoch, are those of the low part
# alone: every rank samples the same reports, every run has the same order. Mix them (SeedSequence) or keep below
# 2**32.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
import torch

SEEDS = [1, (1 << 32) + 1, (7 << 32) + 1]
drawn = {"Generator": [], "manual_seed": [], "numpy": []}
for seed in SEEDS:
    drawn["Generator"].append(torch.randperm(50, generator=torch.Generator().manual_seed(seed)).tolist())
    torch.manual_seed(seed)
    assert torch.initial_seed() == seed
    drawn["manual_seed"].append(torch.nn.functional.dropout(torch.ones(50)).tolist())
    drawn["numpy"].append(np.random.default_rng(seed).permutation(50).tolist())
for name, draws in drawn.items():
    different = len({str(draw) for draw in draws})
    print(f"{name}: {different} different of {len(SEEDS)} seeds {SEEDS}")
    assert different == (3 if name == "numpy" else 1), name
EOF
