#!/bin/sh
# pycocotools 2.0.11, OpenCV 5.0.0.93, Pillow 13.0.0, scikit-image 0.26.0: the polygon (10, 10), (20, 10), (20, 20), (10, 20) of a
# nodule is 10 x 10 pixels by the first and 11 x 11 by all others, which draw its last row and column too. Guess: 100 by all.
# Seen: below. So: two masks of one file of annotations have an IoU of 0.83, and of 3 x 3 pixels 0.56. Rasterise truth and answers
# by one package, COCO's where its metric is reported.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pycocotools==2.0.11 opencv-python-headless==5.0.0.93 Pillow==13.0.0 \
    scikit-image==0.26.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import cv2
import numpy as np
from PIL import Image, ImageDraw
from pycocotools import mask
from skimage.draw import polygon2mask


def masks(side):
    corners = np.array([(10, 10), (10 + side, 10), (10 + side, 10 + side), (10, 10 + side)])
    flat, size = corners.ravel().tolist(), (40, 40)
    drawn = Image.new("L", size)
    ImageDraw.Draw(drawn).polygon(flat, fill=1)
    return {
        "pycocotools": mask.decode(mask.frPyObjects([flat], *size)[0]),
        "OpenCV": cv2.fillPoly(np.zeros(size, np.uint8), [corners.astype(np.int32)], 1),
        "Pillow": np.asarray(drawn),
        "scikit-image": polygon2mask(size, corners[:, ::-1]).astype(np.uint8),
    }


for side, shared in ((10, 0.83), (3, 0.56)):
    made = masks(side)
    coco = made.pop("pycocotools")
    iou = {name: round(float((coco & m).sum() / (coco | m).sum()), 2) for name, m in made.items()}
    print(f"side {side}: pycocotools {coco.sum()},", {name: int(m.sum()) for name, m in made.items()}, "IoU", iou)
    assert coco.sum() == side**2 and all(m.sum() == (side + 1) ** 2 for m in made.values())
    assert set(iou.values()) == {shared}
EOF
