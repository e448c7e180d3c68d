#!/bin/sh
# transformers 5.23.0: CLIP's and SigLIP's image processors, given a film of 12 bits as an array of uint16, divide by
# 255 and normalise, so that white is 982 and 513 where a network was trained on 2.1 and 1. The same processors by
# Pillow (`...Pil`) refuse the array by name; given a Pillow image of 16 bits both cut it at 255, and 93 % of the
# film is white. Guess: refused, or scaled by its range. Seen: below. So: which of the two backends is installed
# decides between an error and features of a network that saw inputs hundreds of times too large.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 Pillow==13.0.0 numpy==2.4.6 torch==2.13.0
python3 -m pip install -qq --no-deps --target "$site" torchvision==0.28.0
HF_HUB_OFFLINE=1 PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
import torch
from PIL import Image

# where the two are of unlike builds the C++ operators are absent; nothing here calls one
register, torch.library.register_fake = torch.library.register_fake, lambda *_, **__: lambda made: made
import torchvision  # noqa: F401

torch.library.register_fake = register
import transformers

film = np.linspace(0, 4095, 64 * 64).reshape(64, 64).astype(np.uint16)
array, picture = np.repeat(film[..., None], 3, axis=-1), Image.fromarray(film)
for name, white in (("CLIP", 982), ("Siglip", 513)):
    by_torch = getattr(transformers, f"{name}ImageProcessor")()
    by_pillow = getattr(transformers, f"{name}ImageProcessorPil")()
    values = by_torch(images=array, return_tensors="np")["pixel_values"]
    print(f"{name}, an array: {values.min():.2f} to {values.max():.2f}")
    assert round(float(values.max())) == white
    try:
        by_pillow(images=array, return_tensors="np")
    except ValueError as error:
        print(f"{name} by Pillow, the array: {str(error)[:70]}...")
    else:
        raise SystemExit("Pillow's processor takes the array")
    for processor in (by_torch, by_pillow):
        values = processor(images=picture, return_tensors="np")["pixel_values"]
        top = (values[0, 0] > values[0, 0].max() - 1e-3).mean()
        print(f"{name}, a picture, by {type(processor).__name__}: {top:.0%} white")
        assert 0.90 < top < 0.97
EOF
