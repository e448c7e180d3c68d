#!/bin/sh
# torch 2.13.0, gloo, two ranks: `all_reduce` by MAX or MIN loses a NaN that the second rank holds, and keeps one
# that the first holds: it compares in the order of the ranks, and no number is less than NaN or greater. SUM
# keeps both. Guess: NaN on both ranks either way, as `torch.max` has it. Seen: below. So: a norm or loss reduced
# by MAX to see whether any rank has diverged says that all is well. Reduce `isfinite` as a number, or take SUM.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import subprocess
import sys
import tempfile

import torch

CODE = """
import sys
import torch
import torch.distributed as dist
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
for holder in (0, 1):
    for name in ("MAX", "MIN", "SUM"):
        value = torch.tensor([float("nan") if rank == holder else 1.0])
        dist.all_reduce(value, getattr(dist.ReduceOp, name))
        print(holder, name, value.item())
dist.destroy_process_group()
"""
with tempfile.TemporaryDirectory() as place:
    ranks = [subprocess.Popen([sys.executable, "-c", CODE, str(rank), place + "/store"], stdout=subprocess.PIPE,
                              text=True) for rank in range(2)]
    outputs = [one.communicate(timeout=120)[0] for one in ranks]
print("rank with the NaN, operation, result on rank 0:", *outputs[0].splitlines(), sep="\n")
assert outputs[0] == outputs[1]
assert outputs[0].split() == "0 MAX nan 0 MIN nan 0 SUM nan 1 MAX 1.0 1 MIN 1.0 1 SUM nan".split()
assert torch.tensor([1.0, float("nan")]).max().isnan()
EOF
