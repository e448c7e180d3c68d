#!/bin/sh
# OpenCV 5.0.0 applies CLAHE to 16 bits with 65,536 bins, and the clip limit is rounded down to whole counts, one
# at least: tiles of 64 x 64 have 4,096 pixels, so that every limit below 32 is the same one. On the same
# film in 8 bits the limits differ. Values of a film of 12 bits also leave their range. Guess: limits differ on
# 16 bits too. Seen: alike to the bit, and 3,097 becomes 9,584.
# So: clipLimit=2 of a recipe for 8-bit PNGs means another contrast on 16-bit ones, and tuning it changes nothing.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" opencv-python-headless==5.0.0.93 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import cv2
import numpy as np

ramp = np.add.outer(np.arange(512), np.arange(512)) * 2
film = (ramp + np.random.default_rng(0).normal(0, 60, ramp.shape) + 900).clip(0, 4095).astype(np.uint16)


def equalized(image, limit):
    """Return the image behind CLAHE in the usual 8 x 8 tiles."""
    return cv2.createCLAHE(clipLimit=limit, tileGridSize=(8, 8)).apply(image)


deep = [equalized(film, limit) for limit in (1, 2, 4, 16, 31)]
flat = [equalized((film >> 4).astype(np.uint8), limit) for limit in (1, 2, 4, 16)]
alike = [sum(np.array_equal(image, images[0]) for image in images) for images in (deep, flat)]
print("of 5 limits on 16 bits alike:", alike[0], "; of 4 on 8 bits:", alike[1])
print("greatest value before and after:", film.max(), deep[0].max())
assert alike == [5, 1]
assert film.max() < 4096 < deep[0].max()
EOF
