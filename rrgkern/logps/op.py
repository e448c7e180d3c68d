"""The dispatcher: `rrgkern::token_logps_*` and `rrgkern::linear_token_logps_*`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import direct, register_csrc, register_triton
from rrgkern.first_order import first_order
from rrgkern.logps import csrc_launch, from_hidden
from rrgkern.logps.from_hidden import CSRC_TILES, TORCH_TILES
from rrgkern.logps.head import Gradients
from rrgkern.logps.inputs import (
    FromHidden,
    FromHiddenBackward,
    FromHiddenBackwardInto,
    FromLogits,
    FromLogitsBackward,
)
from rrgkern.logps.online_softmax import Coefficients, SoftmaxStats, stats_dtype
from rrgkern.logps.reference import softmax_backward_reference, softmax_stats_reference
from rrgkern.ops import custom_op, gradients, pack


@custom_op("rrgkern::token_logps_fwd", FromLogits)
def token_logps_fwd(*inputs: Any) -> SoftmaxStats:
    """logps, entropy (or size 0), shift, lognorm, [N] each."""
    return softmax_stats_reference(FromLogits(*inputs))


@custom_op("rrgkern::token_logps_bwd", FromLogitsBackward)
def token_logps_bwd(*inputs: Any) -> Tensor:
    """Gradient of sum(coef * logps + coef_entropy * entropy), shaped as logits."""
    return softmax_backward_reference(pack(FromLogitsBackward, inputs))


@custom_op("rrgkern::token_logps_bwd_", FromLogitsBackward, mutates=("logits",))
def token_logps_bwd_(*inputs: Any) -> None:
    """The same gradient, written over the logits."""
    x = pack(FromLogitsBackward, inputs)
    x.logits.copy_(softmax_backward_reference(x))


@token_logps_fwd.register_fake
def _(*inputs: Any) -> SoftmaxStats:
    x = FromLogits(*inputs)
    return SoftmaxStats.empty(x.logits, x.targets.shape[0], stats_dtype(x.logits.dtype), x.entropy)


@token_logps_bwd.register_fake
def _(*inputs: Any) -> Tensor:
    logits = pack(FromLogitsBackward, inputs).logits
    return logits.new_empty(logits.shape)


def _save_logits(ctx: Any, inputs: tuple[Any, ...], output: SoftmaxStats) -> None:
    x = FromLogits(*inputs)
    ctx.save_for_backward(x.logits, x.targets, x.keep, *output)
    ctx.temperature = x.temperature
    ctx.set_materialize_grads(False)


@first_order("token_logps")
def _backward_to_logits(
    ctx: Any, coef: Tensor | None, entropy: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    logits, targets, keep, *stats = ctx.saved_tensors
    coefficients = _coefficients(coef, entropy, SoftmaxStats(*stats), keep)
    if coefficients is None:
        return gradients(FromLogits)
    backward = direct(token_logps_bwd, *coefficients, logits)
    gradient = backward(*coefficients, logits, targets, *stats, ctx.temperature)
    return gradients(FromLogits, logits=gradient)


class _Direct(torch.autograd.Function):
    """The launcher's forward and backward without the dispatcher."""

    @staticmethod
    def forward(
        ctx: Any,
        launch: Callable[..., SoftmaxStats],
        save: Callable[..., None],
        back: Callable[..., tuple[Tensor | None, ...]],
        *inputs: Any,
    ) -> tuple[Tensor, Tensor]:
        stats = launch(*inputs)
        save(ctx, inputs, stats)
        ctx.back = back
        return stats.logps, stats.entropy

    @staticmethod
    def backward(
        ctx: Any, coef: Tensor | None, entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        ctx.needs = ctx.needs_input_grad[3:6]
        return None, None, None, *ctx.back(ctx, coef, entropy)


def logps_of_logits(x: FromLogits) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (or size 0) [N] of logits as `as_rows` lays them out."""
    forward = direct(token_logps_fwd, x.logits, x.targets, x.keep)
    if forward is not token_logps_fwd and torch.is_grad_enabled() and x.logits.requires_grad:
        logps, entropy = _Direct.apply(forward, _save_logits, _backward_to_logits, *x)
        return logps, entropy
    stats = SoftmaxStats(*forward(*x))
    return stats.logps, stats.entropy


@custom_op("rrgkern::linear_token_logps_fwd", FromHidden)
def linear_token_logps_fwd(*inputs: Any) -> SoftmaxStats:
    """logps, entropy, shift, lognorm [N] each; entropy has size 0 when not asked for."""
    return from_hidden.fwd(TORCH_TILES, *inputs)


@custom_op("rrgkern::linear_token_logps_bwd", FromHiddenBackward)
def linear_token_logps_bwd(*inputs: Any) -> Gradients:
    """Gradients of hidden, weight and bias; size 0 where not wanted."""
    return from_hidden.bwd(TORCH_TILES, *inputs)


@custom_op(
    "rrgkern::linear_token_logps_bwd_into", FromHiddenBackwardInto, mutates=("weight_total",)
)
def linear_token_logps_bwd_into(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Gradients of hidden and bias; that of the weight is added to `weight_total`, by slices."""
    return from_hidden.bwd_into(TORCH_TILES, *inputs)


@linear_token_logps_fwd.register_fake
def _(*inputs: Any) -> SoftmaxStats:
    x = FromHidden(*inputs)
    return SoftmaxStats.empty(x.hidden, x.hidden.shape[0], stats_dtype(x.hidden.dtype), x.entropy)


@linear_token_logps_bwd.register_fake
def _(*inputs: Any) -> Gradients:
    x = pack(FromHiddenBackward, inputs)
    return Gradients(
        _empty_gradient(x.hidden, x.hidden, x.want_hidden),
        _empty_gradient(x.weight, x.hidden, x.want_weight),
        _empty_gradient(x.bias, x.hidden, x.want_bias),
    )


@linear_token_logps_bwd_into.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor]:
    x = pack(FromHiddenBackwardInto, inputs).backward
    d_hidden = _empty_gradient(x.hidden, x.hidden, x.want_hidden)
    return d_hidden, _empty_gradient(x.bias, x.hidden, x.want_bias)


def _save_hidden(ctx: Any, inputs: tuple[Any, ...], output: SoftmaxStats) -> None:
    x = FromHidden(*inputs)
    ctx.save_for_backward(x.hidden, x.weight, x.bias, x.targets, x.keep, *output)
    ctx.temperature, ctx.softcap = x.temperature, x.softcap
    ctx.set_materialize_grads(False)


def _backward_to_hidden(
    ctx: Any, coef: Tensor | None, entropy: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    ctx.needs = ctx.needs_input_grad[:3]
    return _gradients_of_head(ctx, coef, entropy)


@first_order("linear_token_logps")
def _gradients_of_head(
    ctx: Any, coef: Tensor | None, entropy: Tensor | None
) -> tuple[Tensor | None, ...]:
    hidden, weight, bias, targets, keep, *stats = ctx.saved_tensors
    coefficients = _coefficients(coef, entropy, SoftmaxStats(*stats), keep)
    if coefficients is None:
        return gradients(FromHidden)
    backward = direct(linear_token_logps_bwd, *coefficients, hidden, weight, bias)
    returned = backward(
        *(*coefficients, hidden, weight, bias, targets, *stats),
        *(ctx.temperature, ctx.softcap, *ctx.needs),
    )
    d_hidden, d_weight, d_bias = (
        g if want else None for g, want in zip(returned, ctx.needs, strict=True)
    )
    return gradients(FromHidden, hidden=d_hidden, weight=d_weight, bias=d_bias)


def logps_of_hidden(x: FromHidden) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (or size 0) [N] of hidden states [N, H]."""
    tensors = [t for t in (x.hidden, x.weight, x.bias, x.targets, x.keep) if t is not None]
    forward = direct(linear_token_logps_fwd, *tensors)
    tracked = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if forward is not linear_token_logps_fwd and tracked:
        logps, entropy = _Direct.apply(forward, _save_hidden, _gradients_of_head, *x)
        return logps, entropy
    stats = SoftmaxStats(*forward(*x))
    return stats.logps, stats.entropy


def _coefficients(
    coef: Tensor | None, coef_entropy: Tensor | None, stats: SoftmaxStats, keep: Tensor | None
) -> Coefficients | None:
    """The gradients that came back to logps and entropy, 0 outside of `keep`; None: neither did."""
    if not stats.entropy.numel():
        coef_entropy = None
    if coef is None and coef_entropy is not None:
        coef = torch.zeros_like(coef_entropy)
    if coef is None:
        return None
    if keep is not None:  # selected: what comes back to the zeros there may be NaN
        coef = torch.where(keep, coef, 0.0)
        coef_entropy = None if coef_entropy is None else torch.where(keep, coef_entropy, 0.0)
    return Coefficients(coef, coef_entropy)


def _empty_gradient(value: Tensor | None, like: Tensor, wanted: bool) -> Tensor:
    return torch.empty_like(value) if value is not None and wanted else like.new_empty(0)


token_logps_fwd.register_autograd(_backward_to_logits, setup_context=_save_logits)
linear_token_logps_fwd.register_autograd(_backward_to_hidden, setup_context=_save_hidden)
FROM_LOGITS = "rrgkern.logps.triton_from_logits"
FROM_HIDDEN = "rrgkern.logps.triton_tile"
register_triton(token_logps_fwd, FROM_LOGITS, "token_logps_fwd")
register_triton(token_logps_bwd, FROM_LOGITS, "token_logps_bwd")
register_triton(token_logps_bwd_, FROM_LOGITS, "token_logps_bwd_")
register_csrc(token_logps_fwd, csrc_launch.token_logps_fwd, ("cpu",), "logps")
register_csrc(token_logps_bwd, csrc_launch.token_logps_bwd, ("cpu",), "logps")
register_csrc(token_logps_bwd_, csrc_launch.token_logps_bwd_, ("cpu",), "logps")
register_triton(linear_token_logps_fwd, FROM_HIDDEN, "fwd")
register_triton(linear_token_logps_bwd, FROM_HIDDEN, "bwd")
register_triton(linear_token_logps_bwd_into, FROM_HIDDEN, "bwd_into")
register_csrc(linear_token_logps_fwd, partial(from_hidden.fwd, CSRC_TILES), ("cpu",), "logps")
register_csrc(linear_token_logps_bwd, partial(from_hidden.bwd, CSRC_TILES), ("cpu",), "logps")
register_csrc(
    linear_token_logps_bwd_into, partial(from_hidden.bwd_into, CSRC_TILES), ("cpu",), "logps"
)
