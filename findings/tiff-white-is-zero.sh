#!/bin/sh
# A TIFF whose PhotometricInterpretation is WhiteIsZero: Pillow 13.0.0 and OpenCV 5.0.0 turn it to black is zero where
# it has 8 bits and leave it as it is stored where it has 16; tifffile 2026.3.3 and SimpleITK 2.5.7 never turn it.
# Guess: all stored or all turned, of 16 bits; 8 were not thought of. Seen: below. So: a
# scanner's film, exported at 8 and at 16 bits, is its own negative in one reader, and at 8 bits between two readers.
# Read the tag.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" Pillow==13.0.0 opencv-python-headless==5.0.0.93 tifffile==2026.3.3 \
    simpleitk==2.5.7 numpy==2.4.6
cd "$site"
PYTHONPATH="$site" python3 - <<'EOF'
import cv2
import numpy as np
import SimpleITK as sitk
import tifffile
from PIL import Image

READERS = {"Pillow": lambda path: np.array(Image.open(path)), "OpenCV": lambda path: cv2.imread(path, -1),
           "tifffile": tifffile.imread, "SimpleITK": lambda path: sitk.GetArrayFromImage(sitk.ReadImage(path))}
for kind in (np.uint8, np.uint16):
    film = np.array([[0, 60, 120], [180, 240, 255]], kind) * kind(16 if kind is np.uint16 else 1)
    tifffile.imwrite("film.tif", film, photometric="miniswhite")
    print(f"{np.dtype(kind)}, stored: {film.ravel().tolist()}")
    for name, read in READERS.items():
        values = read("film.tif")
        print(f"  {name}: {values.ravel().tolist()}")
        turned = kind is np.uint8 and name in ("Pillow", "OpenCV")
        assert np.array_equal(values, 255 - film if turned else film)
EOF
