"""Serve from hidden states: the head's products, and the kernels of `tiles` between them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rrgkern.logps import cpu_tile, csrc_launch
from rrgkern.logps.head import (
    BackwardRows,
    Gradients,
    NeedsGrad,
    Tiles,
    Tiling,
    masked_forward,
    tiled_backward,
)
from rrgkern.logps.inputs import FromHidden, FromHiddenBackward, FromHiddenBackwardInto
from rrgkern.logps.online_softmax import Coefficients, SoftmaxStats
from rrgkern.ops import pack

# A tile and a slice of each matrix stay in the cache of a core.
TORCH_TILES = Tiles(Tiling(columns=1024, elements=1 << 19), cpu_tile)
CSRC_TILES = Tiles(Tiling(columns=1024, elements=1 << 19), csrc_launch, csrc_launch.whole_rows)


def fwd(tiles: Tiles, *inputs: Any) -> SoftmaxStats:
    """Serve `rrgkern::linear_token_logps_fwd`."""
    x = FromHidden(*inputs)
    x = x._replace(targets=x.targets.contiguous())
    return masked_forward(x, tiles.kernels.head_of(x), tiles)


def bwd(tiles: Tiles, *inputs: Any) -> Gradients:
    """Serve `rrgkern::linear_token_logps_bwd`."""
    return _backward(pack(FromHiddenBackward, inputs), tiles, None)


def bwd_into(tiles: Tiles, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Serve `rrgkern::linear_token_logps_bwd_into`."""
    weight_total, x = pack(FromHiddenBackwardInto, inputs)
    gradients = _backward(x, tiles, weight_total)
    return gradients.hidden, gradients.bias


def _backward(x: FromHiddenBackward, tiles: Tiles, weight_total: Tensor | None) -> Gradients:
    needs = NeedsGrad(x.want_hidden, x.want_weight, x.want_bias)
    coef, entropy = x.coefficients
    coefficients = Coefficients(
        coef.contiguous(), None if entropy is None else entropy.contiguous()
    )
    rows = BackwardRows(x.hidden, x.targets.contiguous(), x.stats, coefficients)
    return tiled_backward(rows, tiles.kernels.head_of(x), needs, tiles, weight_total)
