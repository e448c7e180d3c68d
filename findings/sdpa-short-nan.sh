#!/bin/sh
# torch 2.13.0, CPU: `scaled_dot_product_attention` hides NaN where fewer keys stand in a row than a vector register holds
# numbers: a query with a NaN gives zeros, and a single key with one too. The maths backend gives NaN, and so does the
# same call of 64 keys. Nobody asked; it was met where DoRA's NaN left a tiny model's loss finite. Seen: below.
# So: a test of six tokens on a CPU does not show that a NaN is told. Take a few dozen, or the maths backend.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

for keys in (1, 6, 64):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, keys, 8) for _ in range(3))
    q[0, 0, -1, 3] = float("nan")
    fused = attention(q, k, v)[0, 0, -1]
    with sdpa_kernel(SDPBackend.MATH):
        plain = attention(q, k, v)[0, 0, -1]
    print(f"{keys} keys: {fused.tolist()[:3]}, by the maths backend {plain.tolist()[:3]}")
    assert plain.isnan().all()
    assert fused.isnan().all() if keys == 64 else (fused == 0).all()
EOF
