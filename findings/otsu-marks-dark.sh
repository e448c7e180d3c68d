#!/bin/sh
# SimpleITK 2.5.7: `OtsuThreshold` marks what is dark. Its value "inside" (1) is for what lies at or below the threshold; a
# bright square on a dark ground is 0 and the ground 1. Li, Triangle, Huang and Yen likewise, but `OtsuMultipleThresholds`
# marks the square, as film > threshold_otsu(film) of scikit-image 0.26.0 does. Guess: the square is 1. Seen: below.
# So: a mask of the film's field or of a device made this way is the negative of the one by another package, and a share
# of 0.94 for 0.06 is no error to anybody. Ask for (image, 0, 1), and look at one.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" SimpleITK==2.5.7 numpy==2.4.6 scikit-image==0.26.0
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
import SimpleITK as sitk
from skimage.filters import threshold_otsu

film = np.full((20, 20), 100, np.uint16)
film[5:10, 5:10] = 3000
image = sitk.GetImageFromArray(film)


def square(mask):
    mask = sitk.GetArrayFromImage(mask)
    return int(mask[7, 7]), int(mask[0, 0])


DARK = ("OtsuThreshold", "LiThreshold", "TriangleThreshold", "HuangThreshold", "YenThreshold")
masks = {name: square(getattr(sitk, name)(image)) for name in DARK}
masks["OtsuMultipleThresholds"] = square(sitk.OtsuMultipleThresholds(image))
masks["OtsuThreshold, 0, 1"] = square(sitk.OtsuThreshold(image, 0, 1))
for name, (inside, ground) in masks.items():
    print(f"{name}: square {inside}, ground {ground}")
bright = film > threshold_otsu(film)
print(f"scikit-image: square {int(bright[7, 7])}, ground {int(bright[0, 0])}")
assert all(masks[name] == (0, 1) for name in DARK)
assert masks["OtsuMultipleThresholds"] == masks["OtsuThreshold, 0, 1"] == (1, 0)
assert bright[7, 7] and not bright[0, 0]
EOF
