#!/bin/sh
# pydicom 3.0.2 windows into the range that the stored bits reach behind slope and intercept: 12 bits with an
# intercept of -1024 come out between -1024 and 3071, the same film without one between 0 and 4095. highdicom
# 0.28.2 gives 0 to 1 for both. Guess: black is 0. Seen: below.
# So: `windowed / 4095` of a set of films of several makers has several blacks, and a cast to uint16 makes
# the black of the one maker white.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pydicom==3.0.2 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
import pydicom
from pydicom.pixels import apply_modality_lut, apply_windowing

stored = np.array([[0, 1024, 4095]], np.uint16)
ends = {}
for intercept in (0, -1024):
    film = pydicom.Dataset()
    film.PhotometricInterpretation, film.PixelRepresentation = "MONOCHROME2", 0
    film.BitsAllocated, film.BitsStored = 16, 12
    film.RescaleSlope, film.RescaleIntercept = 1, intercept
    film.WindowCenter, film.WindowWidth = 1024 + intercept, 400
    windowed = apply_windowing(apply_modality_lut(stored, film), film)
    ends[intercept] = windowed.min(), windowed.max()
    cast = windowed.astype(np.int64).astype(np.uint16)
    print("intercept", intercept, "black and white", ends[intercept], "as uint16", cast)
assert ends == {0: (0, 4095), -1024: (-1024, 3071)}
EOF
