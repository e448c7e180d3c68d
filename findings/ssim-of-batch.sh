#!/bin/sh
# torchmetrics 1.9.0: the structural similarity of a pair of films, without a data_range, depends on what else is in
# the batch, for the range is taken from all of it: 0.76 alone and 0.90 beside a brighter pair. Guess: a pair's own.
# Seen: below.
# So: the mean over a data set changes with batch size and order, and rises with one bright film. Say data_range.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import torch
from torchmetrics.functional.image import structural_similarity_index_measure as ssim

draw = torch.Generator().manual_seed(0)
film = 100 * torch.rand(1, 1, 32, 32, generator=draw)
noisy = film + 60 * torch.rand(1, 1, 32, 32, generator=draw)
bright = 4000 * torch.rand(1, 1, 32, 32, generator=draw)


def of_first(films, others, **options):
    return float(ssim(films, others, reduction="none", **options)[0])


beside = torch.cat([film, bright]), torch.cat([noisy, bright])
alone, among = of_first(film, noisy), of_first(*beside)
said = [of_first(*pair, data_range=200.0) for pair in ((film, noisy), beside)]
print(f"alone {alone:.4f}, beside a brighter pair {among:.4f}; with data_range {said[0]:.4f}, {said[1]:.4f}")
assert among - alone > 0.1
assert abs(said[0] - said[1]) < 1e-5
EOF
