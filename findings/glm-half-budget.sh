#!/bin/sh
# transformers 5.23.0: GLM-4V's image processor counts an image as two frames, so that its longest_edge, a number
# of pixels as in Qwen2-VL's, holds half of them: with 1,003,520 for both a film of 2544 x 3056 becomes 621 tokens
# by the one and 1,248 by the other. Below the bound the two agree. Guess: equal. Seen: below. So: a bound carried
# over from a Qwen recipe halves the resolution of every large film; give GLM twice the number.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" transformers==5.23.0 Pillow==13.0.0 numpy==2.4.6 torch==2.13.0
HF_HUB_OFFLINE=1 PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
from PIL import Image
from transformers import Glm4vImageProcessorPil, Qwen2VLImageProcessorPil

tokens = {}
for name, make, bound in (("Qwen2-VL", Qwen2VLImageProcessorPil, 1_003_520),
                          ("GLM-4V", Glm4vImageProcessorPil, 1_003_520),
                          ("GLM-4V", Glm4vImageProcessorPil, 2 * 1_003_520)):
    processor = make(size={"shortest_edge": 3136, "longest_edge": bound})
    for size in ((512, 512), (2544, 3056)):
        film = Image.fromarray(np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8))
        _, rows, columns = np.asarray(processor(film, return_tensors="np")["image_grid_thw"])[0].tolist()
        tokens[name, bound, size] = rows * columns // processor.merge_size**2
        print(f"{name}, at most {bound:,} pixels, {size[0]} x {size[1]}: {tokens[name, bound, size]} tokens, "
              f"{rows * columns * processor.patch_size**2:,} pixels")
assert tokens["GLM-4V", 1_003_520, (512, 512)] == tokens["Qwen2-VL", 1_003_520, (512, 512)] == 324
assert tokens["GLM-4V", 1_003_520, (2544, 3056)] == 621
assert tokens["Qwen2-VL", 1_003_520, (2544, 3056)] == tokens["GLM-4V", 2 * 1_003_520, (2544, 3056)] == 1248
EOF
