#!/bin/sh
# TorchIO 1.2.1 saves a film to .png as 8 bits by keeping the low byte of each value: 1000 becomes 232 and 1024 black.
# A warning says "Casting to uint 8". .tif keeps the values. Guess: 16 bits, which PNG and SimpleITK beneath can hold.
# Seen: below. So: films behind a pipeline of augmentation, saved as PNG for a look or for a cache, are contours.
# Save .tif or .nii.gz.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchio==1.2.1 torch==2.13.0 numpy==2.4.6
cd "$site"
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
import torchio

film = torch.tensor([[0, 255, 256, 1000], [1024, 2047, 4000, 4095]]).repeat(4, 2)
for kind in (torch.int16, torch.int32, torch.float32):
    for ending in ("png", "tif"):
        torchio.ScalarImage(tensor=film.to(kind)[None, ..., None]).save(f"film.{ending}")
        read = torchio.ScalarImage(f"film.{ending}").data.squeeze().long()
        print(f"{kind}, .{ending}: {film[:2, :4].flatten().tolist()} is read {read[:2, :4].flatten().tolist()}")
        assert torch.equal(read, film % 256 if ending == "png" else film)
EOF
