#!/bin/sh
# MONAI 1.6.1: `ScaleIntensity(minv=-1, maxv=1)` multiplies a film of one value by minv: a field of 1000 becomes
# -1000, a thousand times out of its range, one of 0 becomes 0, the middle of it. With minv=0 both are 0, and
# `ScaleIntensityRangePercentiles` gives -1. Guess: -1 or 0 everywhere. Seen: below. So: one blank exposure, or a
# crop of pure background, puts values of thousands into a batch that was to lie within -1 and 1; take the minimum
# of what the loader gives once.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" monai==1.6.1 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
from monai.transforms import ScaleIntensity, ScaleIntensityRangePercentiles

SCALES = {
    "ScaleIntensity to -1 and 1": ScaleIntensity(-1, 1),
    "ScaleIntensity to 0 and 1": ScaleIntensity(0, 1),
    "percentiles 1 and 99 to -1 and 1": ScaleIntensityRangePercentiles(1, 99, -1, 1, clip=True),
}
outcome = {}
for name, scale in SCALES.items():
    for value in (1000, 0):
        outcome[name, value] = np.unique(np.asarray(scale(np.full((1, 8, 8), value, np.float32)))).tolist()
        print(f"{name}: all {value} becomes {outcome[name, value]}")
first, second, third = SCALES
assert outcome[first, 1000] == [-1000] and outcome[first, 0] == [0]
assert outcome[second, 1000] == [0] and outcome[third, 1000] == [-1]
EOF
