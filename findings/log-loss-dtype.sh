#!/bin/sh
# scikit-learn 1.9.1: `log_loss` of an answer that is sure and wrong (probability 0 of what is there) costs 36 in float64, 16 in
# float32 and 7 in float16, for probabilities are cut at the smallest step of their type. Guess: the same to 1 %.
# Seen: below. Its page says that they are clipped, by eps of the dtype.
# So: of two systems with the same answers the one whose probabilities were saved in float32 has less than half the loss, where
# sure errors make up most of it. Bring both to one type first, and cut at a value that the report names.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
from sklearn.metrics import log_loss

present = [0, 1, 1]
losses = {}
for kind in (np.float64, np.float32, np.float16):
    probabilities = np.array([0, 0, 1], kind)  # the second study is missed for sure
    losses[kind.__name__] = 3 * log_loss(present, probabilities)
    print(f"{kind.__name__}: {losses[kind.__name__]:.2f} for the one error")
cut = {k.__name__: log_loss(present, np.clip(np.array([0, 0, 1], k), 1e-3, 1 - 1e-3)) for k in (np.float64, np.float32)}
assert abs(losses["float64"] - 36.04) < 0.01 and abs(losses["float32"] - 15.94) < 0.01
assert abs(losses["float16"] - 6.93) < 0.01
assert abs(cut["float64"] - cut["float32"]) < 1e-4
EOF
