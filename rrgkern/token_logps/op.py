"""The dispatcher: `rrgkern::token_logps_{fwd,bwd}`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.token_logps import chunked
from rrgkern.token_logps.row_stats import RowStats, stats_dtype

Four = tuple[Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("rrgkern::token_logps_fwd", mutates_args=())
def token_logps_fwd(logits: Tensor, targets: Tensor, temperature: float, entropy: bool) -> Four:
    """logits [N, V] or [B, L, V] -> logps, entropy (or size 0), shift, lognorm, [N] each."""
    return chunked.forward(logits, targets, temperature, entropy)


@token_logps_fwd.register_fake
def _(logits: Tensor, targets: Tensor, temperature: float, entropy: bool) -> Four:
    def per_row(rows: int) -> Tensor:
        return logits.new_empty(rows, dtype=stats_dtype(logits.dtype))

    rows = targets.shape[0]
    return per_row(rows), per_row(rows if entropy else 0), per_row(rows), per_row(rows)


@torch.library.custom_op("rrgkern::token_logps_bwd", mutates_args=())
def token_logps_bwd(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
) -> Tensor:
    """Gradient of sum(coef * logps + coef_entropy * entropy), shaped as logits."""
    stats = RowStats(logps, entropy, shift, lognorm)
    return chunked.backward(coef, coef_entropy, logits, targets, stats, temperature)


@token_logps_bwd.register_fake
def _(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
) -> Tensor:
    return logits.new_empty(logits.shape)


@torch.library.custom_op("rrgkern::token_logps_bwd_", mutates_args=("logits",))
def token_logps_bwd_(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
) -> None:
    """The same gradient, written over the logits."""
    stats = RowStats(logps, entropy, shift, lognorm)
    chunked.backward(coef, coef_entropy, logits, targets, stats, temperature, inplace=True)


@token_logps_bwd_.register_fake
def _(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Four) -> None:
    logits, targets, ctx.temperature, _ = inputs
    ctx.save_for_backward(logits, targets, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, coef: Tensor | None, coef_entropy: Tensor | None, *_: Any) -> Any:
    logits, targets, *stats = ctx.saved_tensors
    if not stats[1].numel():
        coef_entropy = None
    if coef is None:
        if coef_entropy is None:
            return None, None, None, None
        coef = torch.zeros_like(coef_entropy)
    gradient = token_logps_bwd(coef, coef_entropy, logits, targets, *stats, ctx.temperature)
    return gradient, None, None, None


token_logps_fwd.register_autograd(_backward, setup_context=_setup_context)
register_triton(token_logps_fwd, "rrgkern.token_logps.triton_forward", "token_logps_fwd")
register_triton(token_logps_bwd, "rrgkern.token_logps.triton_backward", "token_logps_bwd")
register_triton(token_logps_bwd_, "rrgkern.token_logps.triton_backward", "token_logps_bwd_")
