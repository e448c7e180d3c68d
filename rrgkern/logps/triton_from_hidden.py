"""Serve CUDA from hidden states: the tiled head with Triton between the products."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rrgkern.dispatch import interpreting
from rrgkern.logps import triton_tile
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
from rrgkern.logps.online_softmax import Coefficients, SoftmaxStats, stats_dtype
from rrgkern.ops import pack

# Bytes that one launch leaves in the L2 cache for the next, of 50 MB (H100, H200) or 40 (A100).
TILE_BYTES = 32 << 20
# 2048 rows of 4096 columns where there are many. Fewer rows have wider slices: so many launches
# less; their width is bounded by the fp32 gradient of a slice of the weight.
TILES = Tiles(Tiling(columns=4096, elements=TILE_BYTES // 4, widest=20480), triton_tile)


def head_of(x: FromHidden | FromHiddenBackward | FromHiddenBackwardInto) -> Head:
    """Make the head whose products read 16-bit operands as they are and sum in fp32."""
    # A CPU, where the interpreter runs, has no product of 16-bit operands with an fp32 result.
    states = x.hidden.dtype
    operands = stats_dtype(states) if interpreting() else states
    bias = None if x.bias is None else x.bias.contiguous()
    return Head(x.weight, bias, x.temperature, x.softcap, operands, states)


def fwd(*inputs: Any) -> SoftmaxStats:
    """Serve `rrgkern::linear_token_logps_fwd`."""
    x = FromHidden(*inputs)
    head = head_of(x)
    return masked_forward(x._replace(targets=x.targets.contiguous()), head, TILES)


def bwd(*inputs: Any) -> Gradients:
    """Serve `rrgkern::linear_token_logps_bwd`."""
    x = pack(FromHiddenBackward, inputs)
    return _backward(x, NeedsGrad(x.want_hidden, x.want_weight, x.want_bias), None)


def bwd_into(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Serve `rrgkern::linear_token_logps_bwd_into`."""
    x = pack(FromHiddenBackwardInto, inputs)
    gradients = _backward(x, NeedsGrad(x.want_hidden, True, x.want_bias), x.weight_total)
    return gradients.hidden, gradients.bias


def _backward(
    x: FromHiddenBackward | FromHiddenBackwardInto, needs: NeedsGrad, weight_total: Tensor | None
) -> Gradients:
    coef, entropy = x.coefficients
    coefficients = Coefficients(
        coef.contiguous(), None if entropy is None else entropy.contiguous()
    )
    rows = BackwardRows(x.hidden, x.targets.contiguous(), x.stats, coefficients)
    head = head_of(x)
    return tiled_backward(rows, head, needs, TILES, weight_total)
