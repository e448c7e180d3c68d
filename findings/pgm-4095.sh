#!/bin/sh
# A PGM of 12 bits says in its head that 4095 is white. Pillow 13.0.0 (and imageio 2.38.1, which reads by it)
# multiplies such a film up to 65535, OpenCV 5.0.0 gives the values as they stand. Pillow writes 65535 as the
# greatest value of a film of 12 bits, so that one pass through it changes every value for good. With 8 bits and
# 200 it is the same. Guess: as they stand, by all. Seen: below. So: windows and means in stored units hold for one
# reader alone, and two halves of a set read by the two differ sixteenfold.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" Pillow==13.0.0 imageio==2.38.1 opencv-python-headless==5.0.0.93 numpy==2.4.6
cd "$site"
PYTHONPATH="$site" python3 - <<'EOF'
import cv2
import imageio.v3 as iio
import numpy as np
from PIL import Image

film = np.array([[0, 1000, 2000], [3000, 4000, 4095]], np.uint16)
with open("film.pgm", "wb") as file:
    file.write(b"P5\n3 2\n4095\n" + film.astype(">u2").tobytes())
image = Image.open("film.pgm")
image.save("again.pgm")
read = {"Pillow": np.array(image), "imageio": iio.imread("film.pgm"), "OpenCV": cv2.imread("film.pgm", -1),
        "OpenCV, behind Pillow": cv2.imread("again.pgm", -1)}
print(f"stored: {film.ravel().tolist()}")
for name, values in read.items():
    print(f"{name}: {values.dtype} {values.ravel().tolist()}")
    scaled = np.array_equal(values, np.round(film / 4095 * 65535))
    assert scaled == (name != "OpenCV") and np.array_equal(values, film) == (name == "OpenCV")
EOF
