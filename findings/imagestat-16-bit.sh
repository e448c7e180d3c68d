#!/bin/sh
# Pillow 13.0.0 makes the histogram of mode I;16 of single bytes: each pixel counts twice, by its low and by its
# high byte, and ImageStat's mean, deviation and extrema are of those. A film that is 300 throughout has
# a mean of 22.5, half of 44 + 1. Guess: the value over 256, at most 255. Seen: below.
# So: mean and deviation of a set of 16-bit PNGs that were taken this way say nothing of its brightness.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" Pillow==13.0.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
from PIL import Image, ImageStat

means = {}
for value in (255, 256, 300, 4095):
    image = Image.fromarray(np.full((8, 8), value, np.uint16))
    counted, figures = sum(image.histogram()), ImageStat.Stat(image)
    means[value] = figures.mean[0]
    print(f"{image.mode}, 64 pixels of {value}: {counted} counted, mean {means[value]}, extrema {figures.extrema}")
    assert image.mode == "I;16" and counted == 128
    assert means[value] == (value % 256 + value // 256) / 2
    assert image.getextrema() == (value, value)
assert means[256] < means[255]
EOF
