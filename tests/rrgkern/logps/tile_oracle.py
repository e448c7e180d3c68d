"""One tile of logits through Triton's steps and through PyTorch's."""

from __future__ import annotations

import torch

from rrgkern.logps import triton_tile
from rrgkern.logps.from_hidden import TORCH_TILES
from rrgkern.logps.head import Head, Tile
from rrgkern.logps.online_softmax import Coefficients, RowSums
from tests.rrgkern.device import DEVICE


def check_tile(width: int = 2128) -> None:
    """Compare a tile of two whole blocks and a tail; targets in each of them and in none."""
    targets = torch.tensor([1030, 2100, 5, 9000], device=DEVICE)
    z, coef = torch.randn(4, width).to(DEVICE), torch.randn(4).to(DEVICE)
    head = Head(torch.empty(10000, 1, device=DEVICE), None, 0.7, 0.0, torch.float32)
    results = []
    for steps in (triton_tile.TILES.kernels, TORCH_TILES.kernels):
        sums = RowSums.empty(z, 4, torch.float32)
        tile = Tile(z.clone(), targets, slice(0, width), head, z.new_empty(4 * width))
        exponentials = steps.exponentials(tile, sums, True)[0].clone()
        results.append([exponentials, *sums.others])
        sums.target_logit.nan_to_num_(0.3)
        tile = tile._replace(z=z.clone())
        gradient = steps.tile_gradient(tile, sums.close(0.7, True), Coefficients(coef, coef))
        results[-1].append(gradient.clone())
    for ours, wanted in zip(*results, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)
