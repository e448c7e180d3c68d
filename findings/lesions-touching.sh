#!/bin/sh
# Two lesions of a mask that touch at a corner are two by SciPy 1.17.1 and SimpleITK 2.5.7, and one by OpenCV 5.0.0, scikit-image 0.26.0 and
# connected-components-3d 4.1.1: neighbours are the four by a side or the eight, each by default. Guess: one number. Seen: below.
# A line of one pixel on the slant, a catheter, is as many parts as pixels by the first two.
# So: counts of lesions, and hits and false alarms by lesion, are other numbers by another package. Name the neighbours.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scipy==1.17.1 SimpleITK==2.5.7 opencv-python-headless==5.0.0.93 scikit-image==0.26.0 \
    connected-components-3d==4.1.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import cc3d
import cv2
import numpy as np
import SimpleITK as sitk
from scipy import ndimage
from skimage.measure import label

COUNTS = {
    "SciPy": lambda mask: ndimage.label(mask)[1],
    "SimpleITK": lambda mask: sitk.GetArrayFromImage(sitk.ConnectedComponent(sitk.GetImageFromArray(mask))).max(),
    "OpenCV": lambda mask: cv2.connectedComponents(mask)[0] - 1,
    "scikit-image": lambda mask: label(mask).max(),
    "cc3d": lambda mask: cc3d.connected_components(mask).max(),
}
squares = np.zeros((20, 20), np.uint8)
squares[2:6, 2:6] = squares[6:10, 6:10] = 1
catheter = np.eye(20, dtype=np.uint8)
for name, count in COUNTS.items():
    parts = int(count(squares)), int(count(catheter))
    print(f"{name}: two squares are {parts[0]}, a line on the slant {parts[1]}")
    assert parts == ((2, 20) if name in ("SciPy", "SimpleITK") else (1, 1))
assert ndimage.label(squares, np.ones((3, 3)))[1] == 1
EOF
