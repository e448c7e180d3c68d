"""What logits, targets and temperature must look like."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.token_logps.overwritten import check_not_overwritten

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Beyond, products with 1/T leave the range of fp32.
COLDEST, HOTTEST = 1e-30, 1e30


def check_logits(logits: Tensor, targets: Tensor, temperature: float) -> None:
    """Raise one line for logits [..., V] and targets [...] that do not fit, or a temperature."""
    if logits.dtype not in FLOATS:
        raise TypeError(f"logits is {logits.dtype}, wanted float16, bfloat16, float32 or float64")
    if targets.dtype != torch.int64:
        raise TypeError(f"targets is {targets.dtype}, wanted int64")
    if logits.ndim < 1 or logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits is {list(logits.shape)} and targets {list(targets.shape)}, wanted [..., V] "
            "and [...]"
        )
    if logits.shape[-1] < 1:
        raise ValueError(f"logits is {list(logits.shape)}, wanted a vocabulary of at least 1")
    if logits.device != targets.device:
        raise ValueError(
            f"targets is on {targets.device} and logits on {logits.device}; move them to one device"
        )
    if not COLDEST <= temperature <= HOTTEST:
        raise ValueError(
            f"temperature is {temperature}, wanted a positive number from {COLDEST} to {HOTTEST}"
        )
    if not torch.compiler.is_compiling():
        check_not_overwritten(logits)
