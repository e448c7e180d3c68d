#!/bin/sh
# ImageHash 4.3.2 turns an image to 8 bits by Pillow 13.0.0's `convert("L")`, which cuts 16-bit values off at 255.
# Films of 12 bits whose black lies above that are one white field: all of them have the same perceptual,
# difference and average hash. Guess: unlike films have unlike hashes. Seen: four films, one hash. So: leaving out
# duplicates by hash keeps one study of a set of 16-bit PNGs. Scale to 8 bits first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" ImageHash==4.3.2 Pillow==13.0.0 numpy==2.4.6 scipy==1.17.1
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import imagehash
import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

films = []
for seed in range(4):
    smooth = gaussian_filter(np.random.default_rng(seed).normal(size=(256, 256)), 12)
    films.append(np.interp(smooth, (smooth.min(), smooth.max()), (300, 4095)).astype(np.uint16))
hashes = {}
for name in ("phash", "dhash", "average_hash"):
    make = getattr(imagehash, name)
    deep = [Image.fromarray(film) for film in films]
    assert deep[0].mode == "I;16"
    hashes[name] = [len({str(make(image)) for image in images})
                    for images in (deep, [Image.fromarray((film >> 4).astype(np.uint8)) for film in films])]
    print(f"{name}: of 4 films {hashes[name][0]} hashes in 16 bits, {hashes[name][1]} in 8")
    assert hashes[name] == [1, 4], name
EOF
