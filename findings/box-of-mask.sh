#!/bin/sh
# The box of a mask of 10 x 10 pixels is 10 wide by pycocotools 2.0.11 (`toBbox`) and scikit-image 0.26.0, and 9 wide by
# supervision 0.31.2 (`mask_to_xyxy`) and torchvision 0.28.0 (`masks_to_boxes`), whose lower right corner is the last
# pixel itself. Their IoU is 0.81, that of a nodule of 5 pixels 0.64, and a line of one pixel has no area. Guess: 10 by
# all. Seen: below. So: references made from masks by the one and answers by the other lose boxes at an IoU of 0.75
# that are exactly right. Name the tool; add 1 to the far corner.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 pycocotools==2.0.11 supervision==0.31.2 \
    scikit-image==0.26.0 numpy==2.4.6
python3 -m pip install -qq --no-deps --target "$site" torchvision==0.28.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
import supervision
import torch
from pycocotools import mask as rle
from skimage.measure import regionprops

# where the two are of unlike builds the C++ operators are absent; nothing here calls one
register, torch.library.register_fake = torch.library.register_fake, lambda *_, **__: lambda made: made
from torchvision.ops import box_iou, masks_to_boxes

torch.library.register_fake = register
for side, overlap in ((10, 0.81), (5, 0.64), (1, 0.0)):
    mask = np.zeros((100, 100), np.uint8)
    mask[20:20 + side, 40:50] = 1
    mask[:, 40 + side:] = 0
    left, top, width, height = rle.toBbox(rle.encode(np.asfortranarray(mask)))
    whole = [left, top, left + width, top + height]
    y0, x0, y1, x1 = regionprops(mask)[0].bbox
    assert [x0, y0, x1, y1] == whole == [40, 20, 40 + side, 20 + side]
    short = masks_to_boxes(torch.from_numpy(mask)[None] > 0)
    assert supervision.mask_to_xyxy(mask[None] > 0).tolist() == short.tolist() == [[40, 20, 39 + side, 19 + side]]
    iou = float(box_iou(torch.tensor([whole]), short))
    print(f"{side} pixels: {whole} and {short.tolist()[0]}, IoU {iou:.2f}")
    assert abs(iou - overlap) < 1e-6
EOF
