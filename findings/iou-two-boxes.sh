#!/bin/sh
# torchmetrics 1.9.0, `IntersectionOverUnion` of detections: the mean is over all pairs of an answer and a reference of
# one film, not over matched ones. A film with two nodules, both boxes exactly right, has 0.5; with three 0.33. Two
# films of one nodule each have 1. With iou_threshold=0.5 all are 1, a nodule that was not boxed costs nothing and
# a second box beside it nearly nothing. Guess: a false box lowers the mean, which it does; that right boxes do was not
# asked. Seen: below. So: the IoU of a grounded report falls with the number of its findings. Match first.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6 pycocotools==2.0.11 \
    pillow==12.3.0
python3 -m pip install -qq --no-deps --target "$site" torchvision==0.28.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch

# where the two are of unlike builds the C++ operators are absent; nothing here calls one
register, torch.library.register_fake = torch.library.register_fake, lambda *_, **__: lambda made: made
import torchvision

torch.library.register_fake = register
from torchmetrics.detection import IntersectionOverUnion

NODULES = [[10.0, 10, 50, 50], [60.0, 60, 90, 90], [10.0, 60, 40, 90]]


def film(boxes):
    """Give boxes of one label as torchmetrics takes them."""
    return {"boxes": torch.tensor(boxes).reshape(-1, 4), "labels": torch.zeros(len(boxes), dtype=torch.int),
            "scores": torch.ones(len(boxes))}


CASES = {"one nodule": ([NODULES[:1]], [NODULES[:1]], 1, 1), "two": ([NODULES[:2]], [NODULES[:2]], 1 / 2, 1),
         "three": ([NODULES], [NODULES], 1 / 3, 1), "two films": ([NODULES[:1]] * 2, [NODULES[:1]] * 2, 1, 1),
         "one of two boxed": ([NODULES[:1]], [NODULES[:2]], 1 / 2, 1),
         "one boxed twice": ([[NODULES[0], [12.0, 10, 50, 50]]], [NODULES[:1]], 0.975, 0.975)}
for name, (answers, references, plain, at_half) in CASES.items():
    values = []
    for threshold in (None, 0.5):
        metric = IntersectionOverUnion(iou_threshold=threshold)
        metric.update([film(boxes) for boxes in answers], [film(boxes) for boxes in references])
        values.append(metric.compute()["iou"].item())
    print(f"{name}: {values[0]:.3f}, with a threshold {values[1]:.3f}")
    assert abs(values[0] - plain) < 1e-6 and abs(values[1] - at_half) < 1e-6
EOF
