#!/bin/sh
# Pillow 13.0.0 makes the histogram of mode I;16 of single bytes, as many as there are pixels: low and high bytes of
# the left half of each row. ImageStat's mean, deviation and extrema are of those. A film that is 300 on
# the left has a mean of 22.5, half of 44 + 1, whatever its right half shows. Guess: the value over 256, at most
# 255. Seen: below. So: mean and deviation of a set of 16-bit PNGs taken this way say nothing of its brightness.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" Pillow==13.0.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
from PIL import Image, ImageStat

means = {}
for left, right in ((255, 255), (256, 256), (300, 300), (300, 4095)):
    film = np.full((8, 8), left, np.uint16)
    film[:, 4:] = right
    image = Image.fromarray(film)
    means[left, right] = ImageStat.Stat(image).mean[0]
    print(f"{image.mode}: left {left}, right {right}: mean {means[left, right]}, truly {film.mean()}; "
          f"extrema {ImageStat.Stat(image).extrema}, truly {image.getextrema()}")
    assert image.mode == "I;16" and sum(image.histogram()) == film.size
    assert means[left, right] == (left % 256 + left // 256) / 2
    assert image.getextrema() == (film.min(), film.max())
assert means[256, 256] < means[255, 255] and means[300, 300] == means[300, 4095]
EOF
