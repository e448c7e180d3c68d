#!/bin/sh
# ensemble-boxes 1.0.9: three readers mark one opacity, each box beside the other, the outer two further apart. Their
# scores are all 1, as readers' are. What weighted boxes fusion, NMS and non-maximum-weighted make of them depends on
# the order of the readers: one box or two, and which two are joined. Guess: the order does not matter. Seen: below. So:
# VinDr-CXR's three readers, fused in the order of the file, give references that another order does not; sort
# the readers, say so, and count how many boxes another order changes.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" ensemble-boxes==1.0.9 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from itertools import permutations

from ensemble_boxes import nms, non_maximum_weighted, weighted_boxes_fusion

READERS = [[[left, 0.1, left + 0.2, 0.3]] for left in (0.10, 0.15, 0.20)]
RESULTS = {weighted_boxes_fusion: {((0.1, 0.3), (0.175, 0.375)), ((0.125, 0.325), (0.2, 0.4))},
           nms: {((0.1, 0.3), (0.2, 0.4)), ((0.15, 0.35),)},
           non_maximum_weighted: {((0.1, 0.3), (0.181, 0.381)), ((0.15, 0.35),), ((0.119, 0.319), (0.2, 0.4))}}
for fuse, results in RESULTS.items():
    ways = {}
    for order in permutations(range(3)):
        boxes, _, _ = fuse([READERS[reader] for reader in order], [[1.0]] * 3, [[0]] * 3, iou_thr=0.5)
        sides = tuple(sorted((round(float(box[0]), 3), round(float(box[2]), 3)) for box in boxes))
        ways.setdefault(sides, []).append(order)
    for sides, orders in ways.items():
        print(f"{fuse.__name__}: left and right {sides} in {len(orders)} of 6 orders")
    assert set(ways) == results
EOF
