#!/bin/sh
# torch 2.13.0 on a CPU: `rand` of bf16 has steps of 1/256 near 1 and one zero in 510 numbers; fp32 has none in a
# million. `rand < 0.001` holds three times as often as it should. Gumbel noise made of it, -log(-log(u)), ends at 5.5,
# where many ids are tied. Guess: fewer zeros than 1 in 10,000. Seen: below. `randn`, `exponential_` and
# `gumbel_softmax` of bf16 are sound. So: a token drawn by the Gumbel maximum in bf16 is the first of those at the
# top: of 4,000 equal ids the later half is never drawn. Draw the noise in fp32.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import torch

torch.manual_seed(0)
below, greatest, later = {}, {}, {}
for kind in (torch.bfloat16, torch.float32):
    drawn = torch.rand(1_000_000, dtype=kind)
    below[kind] = (drawn < 0.001).float().mean().item()
    noise = -(-torch.rand(1000, 4000, dtype=kind).log()).log()  # 1,000 draws among 4,000 ids of equal logits
    greatest[kind] = noise.max().item()
    later[kind] = (noise.argmax(-1) >= 2000).float().mean().item()
    print(f"{kind}: {(drawn == 0).float().mean():.3%} zeros, {below[kind]:.3%} below 0.001; "
          f"greatest noise {greatest[kind]:.1f}; {later[kind]:.1%} of the draws in the later half")
assert 2.5 < below[torch.bfloat16] / below[torch.float32] < 3.5
assert greatest[torch.bfloat16] < 6 < 12 < greatest[torch.float32]
assert later[torch.bfloat16] < 0.01 and 0.45 < later[torch.float32] < 0.55
EOF
