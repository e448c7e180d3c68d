#!/bin/sh
# Pillow 13.0.0: `rotate` and `transform` of mode I;16 by bilinear or bicubic interpolation work on single bytes: a
# film of 50 and 4000 comes out between 0 and 180, in mode I;16, without a word. Nearest is right, `resize` is
# right by every filter. torchvision's RandomRotation, RandomAffine and perspective call them on PIL images. It was
# met while guess 172 was run; nothing was guessed. Seen: below. So: an augmentation of 16-bit PNGs turns part of
# the films into noise near black. Turn to mode F or to a tensor first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" Pillow==13.0.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
from PIL import Image

film = np.full((64, 64), 50, np.uint16)
film[16:48, 16:48] = 4000
image = Image.fromarray(film)
assert image.mode == "I;16"
shear = Image.Transform.AFFINE, (1, 0.1, 0, 0, 1, 0)
for name in ("NEAREST", "BILINEAR", "BICUBIC"):
    how = Image.Resampling[name]
    for what, made in (("rotated by 10", image.rotate(10, how)), ("sheared", image.transform((64, 64), *shear, how)),
                       ("resized", image.resize((48, 48), how))):
        values = np.array(made)
        print(f"{name}, {what}: {made.mode}, greatest {values.max()}, mean {values.mean():.0f}")
        wrong = name != "NEAREST" and what != "resized"
        assert made.mode == "I;16" and (values.max() < 256 if wrong else values.max() >= 4000)
    true = np.array(image.convert("F").rotate(10, how))
    assert true.max() >= 3999 and true.mean() > 1000
EOF
