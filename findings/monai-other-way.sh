#!/bin/sh
# MONAI 1.6.1: `Rotate(angle)` turns the other way. Of a film [1, rows, columns] a mark at the top goes to the right by MONAI and to
# the left by SciPy 1.17.1 and scikit-image 0.26.0 (10 degrees; MONAI takes radians, and gives 10 of them without a word).
# Guess: one direction. Seen: below.
# So: boxes turned by another package's matrix, or test-time augmentation undone by it, miss by twice the angle. Turn film and boxes
# by one package, and look at one.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" monai==1.6.1 torch==2.13.0 scipy==1.17.1 scikit-image==0.26.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import math

import numpy as np
import torch
from monai.transforms import Rotate
from scipy.ndimage import rotate as of_scipy
from skimage.transform import rotate as of_skimage

film = np.zeros((41, 41), np.float32)
film[5, 20] = 1


def column(turned):
    return int(np.asarray(turned).argmax()) % 41 - 20


seen = {
    "SciPy": column(of_scipy(film, 10, reshape=False, order=1)),
    "scikit-image": column(of_skimage(film, 10, order=1)),
    "MONAI": column(Rotate(math.radians(10), keep_size=True)(torch.tensor(film)[None])[0]),
}
print("the mark at the top moves by columns:", seen)
assert seen == {"SciPy": -3, "scikit-image": -3, "MONAI": 3}
EOF
sed -i 's/ by SciPy 1.17.1 and scikit-image 0.26.0/ by SciPy 1.17.1 and scikit-image 0.26.0/' monai-other-way.sh
