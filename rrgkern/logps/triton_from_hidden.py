"""Serve CUDA from hidden states: the tiled head with Triton between the products."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rrgkern.logps import from_hidden
from rrgkern.logps.head import Gradients
from rrgkern.logps.online_softmax import SoftmaxStats
from rrgkern.logps.triton_tile import TILES


def fwd(*inputs: Any) -> SoftmaxStats:
    """Serve `rrgkern::linear_token_logps_fwd`."""
    return from_hidden.fwd(TILES, *inputs)


def bwd(*inputs: Any) -> Gradients:
    """Serve `rrgkern::linear_token_logps_bwd`."""
    return from_hidden.bwd(TILES, *inputs)


def bwd_into(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Serve `rrgkern::linear_token_logps_bwd_into`."""
    return from_hidden.bwd_into(TILES, *inputs)
