"""Serve CPUs from logits with csrc/logps, a row read once and its gradient written once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.logps.inputs import FromLogits, FromLogitsBackward, check_targets
from rrgkern.logps.online_softmax import SoftmaxStats, stats_dtype
from rrgkern.ops import pack

# Stands for a tensor that is absent.
NOTHING = torch.empty(0, device="cpu")


def token_logps_fwd(*inputs: Any) -> SoftmaxStats:
    """Serve `rrgkern::token_logps_fwd`."""
    logits, targets, temperature, entropy, keep = FromLogits(*inputs)
    stats = SoftmaxStats.empty(logits, targets.numel(), stats_dtype(logits.dtype), entropy)
    flags = NOTHING if keep is None or not keep.numel() else keep.contiguous()
    arguments = (logits, targets.contiguous(), flags, temperature, *stats)
    if csrc.load().token_logps_cpu(*arguments, torch.get_num_threads()) >= 0:
        check_targets(targets, logits.shape[-1], keep)
    return stats


def token_logps_bwd(*inputs: Any) -> Tensor:
    """Serve `rrgkern::token_logps_bwd`."""
    x = pack(FromLogitsBackward, inputs)
    gradient = x.logits.new_empty(x.logits.shape)
    _write_gradient(x, gradient)
    return gradient


def token_logps_bwd_(*inputs: Any) -> None:
    """Serve `rrgkern::token_logps_bwd_`."""
    x = pack(FromLogitsBackward, inputs)
    _write_gradient(x, x.logits)


def _write_gradient(x: FromLogitsBackward, gradient: Tensor) -> None:
    coef, bonus = x.coefficients
    csrc.load().token_logps_bwd_cpu(
        coef.contiguous(),
        NOTHING if bonus is None else bonus.contiguous(),
        x.logits,
        x.targets.contiguous(),
        *[part.contiguous() for part in x.stats],
        *(x.temperature, gradient, torch.get_num_threads()),
    )
