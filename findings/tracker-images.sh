#!/bin/sh
# One film of 12 bits in uint16, logged as an image: TensorBoard's writer of torch 2.13.0 makes every value above
# 0 white; wandb 0.31.0 keeps the low byte, so that 255 is white and 256 black again; swanlab 0.10.3 is white from
# 255 on; trackio 0.43.0 refuses. Guess: scaled from least to greatest, or refused. Seen: below. So: what a run's
# page shows is not what the model saw, and wandb's picture, all contours, looks like data at fault. Scale to 8
# bits before logging.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 tensorboard==2.21.0 wandb==0.31.0 swanlab==0.10.3 \
  trackio==0.43.0 Pillow==12.3.0 numpy==2.4.6
WANDB_MODE=offline PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import io

import numpy as np
import swanlab
import trackio
import wandb
from PIL import Image
from torch.utils.tensorboard.summary import image as tensorboard_image

film = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
PROBES = [0, 1, 100, 255, 256, 300, 4095]


def grey(data):
    """Return the greys at the probes of a PNG's bytes."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("L")).ravel()[PROBES].tolist()


shown = {
    "tensorboard": grey(tensorboard_image("film", film, dataformats="HW").value[0].image.encoded_image_string),
    "wandb": np.asarray(wandb.Image(film).image.convert("L")).ravel()[PROBES].tolist(),
    "swanlab": grey(swanlab.Image(film).buffer.getvalue()),
}
try:
    trackio.Image(film)
except ValueError as refusal:
    shown["trackio"] = str(refusal)
print("values", PROBES)
for name, values in shown.items():
    print(name, values)
assert shown["tensorboard"] == [0] + [255] * 6
assert shown["wandb"] == [value % 256 for value in PROBES]
assert shown["swanlab"] == [min(value, 255) for value in PROBES]
assert "uint8" in shown["trackio"]
EOF
