#!/bin/sh
# pyvips 3.2.0 (libvips 8.18.7): a thumbnail of a PNG of 16 bits has 8, the upper ones, and nothing is said. A film
# of 12 bits, 0 to 4095, comes out with 17 shades of grey, 0 to 16; as a JPEG it is as dark. `resize`
# keeps 16 bits. Guess: 16 bits. Seen: below.
# So: a data set made small by its fast path is black, and stretched to full range it shows steps. Use `resize`.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" 'pyvips[binary]==3.2.0' pyvips-binary==8.18.7 pillow==13.0.0 numpy==2.4.6
PYTHONPATH="$site" python3 - "$site/film.png" <<'EOF'
import sys

import numpy as np
import pyvips
from PIL import Image

film = np.linspace(0, 4095, 400 * 400).astype(np.uint16).reshape(400, 400)
Image.fromarray(film).save(sys.argv[1])
small = pyvips.Image.thumbnail(sys.argv[1], 100).numpy()
resized = pyvips.Image.new_from_file(sys.argv[1]).resize(0.25).numpy()
for name, pixels in (("thumbnail", small), ("resize", resized)):
    print(f"{name}: {pixels.dtype}, {pixels.min()} to {pixels.max()}, {len(np.unique(pixels))} values")
assert small.dtype == np.uint8 and len(np.unique(small)) == 17 and small.max() == 16
assert resized.dtype == np.uint16 and resized.max() > 4000
EOF
