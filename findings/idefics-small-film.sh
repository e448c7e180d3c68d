#!/bin/sh
# transformers 5.23.0, Idefics3's and SmolVLM's image processor: the longest edge is a size to be reached, not a
# bound. A film of 256 x 256 is enlarged to 1,456 and becomes 17 tiles, as many as one of 2544 x 3056; Pixtral's
# processor, with a longest edge too, leaves it at 256. Guess: one tile for the small, many for the large. Seen:
# below. So: the small images of many public sets cost 17 times what they hold, in tokens of the prompt and in the
# tower, and lowering the resolution of the data saves nothing. Set `size` by the data.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 Pillow==13.0.0 numpy==2.4.6 torch==2.13.0
HF_HUB_OFFLINE=1 PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
from PIL import Image
from transformers import Idefics3ImageProcessorPil, PixtralImageProcessorPil, SmolVLMImageProcessorPil

tiles = {}
for size in ((256, 256), (512, 512), (2544, 3056)):
    film = Image.fromarray(np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8))
    for processor in (Idefics3ImageProcessorPil(), SmolVLMImageProcessorPil(), PixtralImageProcessorPil()):
        name = type(processor).__name__
        shape = np.asarray(processor(film, return_tensors="np")["pixel_values"]).shape
        tiles[name, size] = shape
        print(f"{name}, {size[0]} x {size[1]}: pixel values {shape}, longest edge {processor.size.longest_edge}")
for name in ("Idefics3ImageProcessorPil", "SmolVLMImageProcessorPil"):
    assert {tiles[name, size][1] for size in ((256, 256), (512, 512), (2544, 3056))} == {17}, name
assert tiles["PixtralImageProcessorPil", (256, 256)][-2:] == (256, 256)
EOF
