"""Serve CPUs from hidden states: PyTorch's products, `tiles` between them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rrgkern.logps import cpu_tile, csrc_tile
from rrgkern.logps.head import (
    BackwardRows,
    Gradients,
    Head,
    NeedsGrad,
    Tiles,
    Tiling,
    masked_forward,
    tiled_backward,
)
from rrgkern.logps.inputs import FromHidden, FromHiddenBackward, FromHiddenBackwardInto
from rrgkern.logps.online_softmax import SoftmaxStats, stats_dtype
from rrgkern.ops import pack

# A tile and a slice of each matrix stay in the cache of a core.
TORCH_TILES = Tiles(Tiling(columns=1024, elements=1 << 19), cpu_tile)
CSRC_TILES = Tiles(Tiling(columns=1024, elements=1 << 19), csrc_tile, csrc_tile.whole_rows)


def head_of(x: FromHidden | FromHiddenBackward | FromHiddenBackwardInto) -> Head:
    """Describe the head whose products read their operands in the statistics' dtype."""
    states = x.hidden.dtype
    return Head(x.weight, x.bias, x.temperature, x.softcap, stats_dtype(states), states)


def fwd(tiles: Tiles, *inputs: Any) -> SoftmaxStats:
    """Body of `rrgkern::linear_token_logps_fwd`."""
    x = FromHidden(*inputs)
    return masked_forward(x, head_of(x), tiles)


def bwd(tiles: Tiles, *inputs: Any) -> Gradients:
    """Body of `rrgkern::linear_token_logps_bwd`."""
    x = pack(FromHiddenBackward, inputs)
    rows = BackwardRows(x.hidden, x.targets, x.stats, x.coefficients)
    needs = NeedsGrad(x.want_hidden, x.want_weight, x.want_bias)
    return tiled_backward(rows, head_of(x), needs, tiles)


def bwd_into(tiles: Tiles, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Body of `rrgkern::linear_token_logps_bwd_into`."""
    x = pack(FromHiddenBackwardInto, inputs)
    rows = BackwardRows(x.hidden, x.targets, x.stats, x.coefficients)
    needs = NeedsGrad(x.want_hidden, True, x.want_bias)
    d_hidden, _, d_bias = tiled_backward(rows, head_of(x), needs, tiles, x.weight_total)
    return d_hidden, d_bias
