#!/bin/sh
# torch 2.13.0 on a CPU adds a bf16 embedding's gradient token by token in bf16: of a token that stands 1,000 times in
# a batch with a gradient of 1 each, 256 arrive, for 256 + 1 is 256 there. `gather` and `index_select` of the same
# rows give 1,000, `weight[ids]` 256, fp16 1,000. One would expect 1,000 by all: a Linear's bias is right, and
# `cumsum` of bf16 ones, guessed to stop at 256, adds in fp32.
# So: full fine-tuning in bf16 on a CPU loses most of the gradient of frequent tokens. Keep weights in fp32.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import torch

ids = torch.zeros(1000, dtype=torch.long)
READS = {
    "embedding": lambda weight: torch.nn.functional.embedding(ids, weight),
    "weight[ids]": lambda weight: weight[ids],
    "index_select": lambda weight: weight.index_select(0, ids),
    "gather": lambda weight: weight.gather(0, ids[:, None].expand(-1, 4)),
}
gradients = {}
for dtype in (torch.float32, torch.bfloat16):
    for name, read in READS.items():
        weight = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
        read(weight).sum().backward()
        gradients[name, dtype] = weight.grad[0, 0].item()
        print(dtype, name, gradients[name, dtype])
assert all(gradients[name, torch.float32] == 1000 for name in READS)
assert [gradients[name, torch.bfloat16] for name in READS] == [256, 256, 1000, 1000]
EOF
