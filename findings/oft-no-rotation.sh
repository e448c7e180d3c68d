#!/bin/sh
# PEFT 0.21.2: OFT turns weights by rotations, which keep the length of each row. Its default, `use_cayley_neumann=True`, puts
# five terms of a series in place of an inverse, and the series needs small angles: with entries of 0.1 in blocks of 32 rows are
# up to 24 % longer or shorter, at 0.3 forty times as long. With False they keep their length to seven digits. Guess:
# kept, to 1 %. Seen: below. So: an OFT adapter at a high rate grows its layer instead of turning it, and nothing says so.
# Look at the rows of the merged weight, or set the option to False.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" peft==0.21.2 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'PY'
import torch
from peft import OFTConfig, get_peft_model

BOUNDS = {(0.01, True): (0, 1e-3), (0.1, True): (0.05, 1), (0.3, True): (10, 1000)}
for spread in (0.01, 0.1, 0.3):
    for series in (True, False):
        torch.manual_seed(0)
        model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(64, 64)),
                               OFTConfig(target_modules=["0"], oft_block_size=32, r=0, use_cayley_neumann=series))
        layer = model.base_model.model[0]
        before = layer.base_layer.weight.detach().norm(dim=1)
        for name, weight in model.named_parameters():
            if "oft_R" in name:
                torch.nn.init.normal_(weight, std=spread)
        model.merge_adapter()
        change = (layer.base_layer.weight.detach().norm(dim=1) / before - 1).abs().max().item()
        print(f"entries of {spread}, use_cayley_neumann={series}: a row's length changes by up to {change:.1e} of it")
        low, high = BOUNDS.get((spread, series), (0, 1e-5))
        assert low <= change < high
PY
