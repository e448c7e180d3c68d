"""Serve CUDA from hidden states: the tiled head with Triton between the products."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rrgkern.logps.head import (
    BackwardRows,
    Gradients,
    NeedsGrad,
    masked_forward,
    tiled_backward,
)
from rrgkern.logps.inputs import FromHidden, FromHiddenBackward, FromHiddenBackwardInto
from rrgkern.logps.online_softmax import Coefficients, SoftmaxStats
from rrgkern.logps.triton_tile import TILES, head_of
from rrgkern.ops import pack


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
