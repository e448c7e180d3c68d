#!/bin/sh
# medpy 0.5.2, MONAI 1.6.1: the 95 % Hausdorff distance of one pair of masks differs. medpy takes the percentile of the distances of
# both ways together, MONAI the greater of two percentiles. A thin tail on one mask: below. Guess: equal to a pixel. Seen: below.
# So: rows of two papers differ by the package, and medpy's falls where the other mask has a long border. Name the package.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" medpy==0.5.2 monai==1.6.1 torch==2.13.0 scipy==1.17.1 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
import torch
from medpy.metric import hd95
from monai.metrics import compute_hausdorff_distance

truth = np.zeros((64, 64), bool)
truth[10:40, 10:40] = True
answer = truth.copy()
answer[10:13, 10:60] = True  # a tail of 20 pixels


def of_monai(one, other):
    batch = [torch.tensor(mask)[None, None].float() for mask in (one, other)]
    return float(compute_hausdorff_distance(*batch, include_background=True, percentile=95))


seen = hd95(answer, truth), of_monai(answer, truth), of_monai(truth, answer)
print("hd95 by medpy {:.1f}, by MONAI {:.1f} and {:.1f}".format(*seen))
assert seen == (14, 17, 17)
EOF
