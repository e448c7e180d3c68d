#!/bin/sh
# A film of 12 bits in a file whose head says so. JPEG 2000: Pillow 13.0.0 multiplies the values by 16, up to 65520,
# OpenCV 5.0.0, imagecodecs 2026.3.6 and glymur 0.14.8 give them as they are. A TIFF of 12 bits a sample: OpenCV
# multiplies by 16, Pillow and tifffile 2026.3.3 do not. Guess: as stored by all. Seen: below. So: neither reader is
# the careful one; a window or a division by 4095 that was right for one format is 16 times off for the other. Look
# at the greatest value of each format, not of each reader.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" Pillow==13.0.0 opencv-python-headless==5.0.0.93 imagecodecs==2026.3.6 \
  tifffile==2026.3.3 glymur==0.14.8 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - "$site" <<'PY'
import pathlib
import struct
import sys

import cv2
import glymur
import imagecodecs
import numpy as np
import tifffile
from PIL import Image

film = np.arange(4096, dtype=np.uint16).reshape(64, 64)
folder = pathlib.Path(sys.argv[1])
jp2, tif = str(folder / "film.jp2"), str(folder / "film.tif")
pathlib.Path(jp2).write_bytes(imagecodecs.jpeg2k_encode(film, level=0, bitspersample=12, codecformat="jp2"))
first, second = film.reshape(-1, 2).T.astype(int)
packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 1).astype(np.uint8).tobytes()
TAGS = ((256, 64), (257, 64), (258, 12), (259, 1), (262, 1), (273, 122), (277, 1), (278, 64), (279, len(packed)))
entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) if tag in (273, 279) else
                   struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in TAGS)
pathlib.Path(tif).write_bytes(struct.pack("<2sHIH", b"II", 42, 8, len(TAGS)) + entries + bytes(4) + packed)
READERS = {
    ("Pillow", jp2): (lambda: Image.open(jp2), 16),
    ("OpenCV", jp2): (lambda: cv2.imread(jp2, cv2.IMREAD_UNCHANGED), 1),
    ("imagecodecs", jp2): (lambda: imagecodecs.imread(jp2), 1),
    ("glymur", jp2): (lambda: glymur.Jp2k(jp2)[:], 1),
    ("Pillow", tif): (lambda: Image.open(tif), 1),
    ("OpenCV", tif): (lambda: cv2.imread(tif, cv2.IMREAD_UNCHANGED), 16),
    ("tifffile", tif): (lambda: tifffile.imread(tif), 1),
}
for (name, path), (read, factor) in READERS.items():
    values = np.asarray(read())
    print(f"{path[-3:]} by {name}: {values.dtype} to {values.max()}")
    assert np.array_equal(values.astype(int), film.astype(int) * factor)
PY
