"""The dispatcher: `rrgkern::token_logps_*` and `rrgkern::linear_token_logps_*`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.logps import cpu_from_logits, cpu_tile, tiled_head
from rrgkern.logps.head import Head, Tiling
from rrgkern.logps.online_softmax import RowStats, stats_dtype
from rrgkern.ops import custom_op, gradients, pack

# A tile and a slice of each matrix stay in the cache of a core.
CPU_TILING = Tiling(columns=1024, elements=1 << 19)


class FromLogits(NamedTuple):
    """logits [N, V] or [B, L, V], targets [N]."""

    logits: Tensor
    targets: Tensor
    temperature: float
    entropy: bool


class FromLogitsBackward(NamedTuple):
    """Coefficients [N] of logps and entropy, inputs and result of the forward."""

    coef: Tensor
    coef_entropy: Tensor | None
    logits: Tensor
    targets: Tensor
    stats: RowStats
    temperature: float


@custom_op("rrgkern::token_logps_fwd", FromLogits)
def token_logps_fwd(*inputs: Any) -> RowStats:
    """logps, entropy (or size 0), shift, lognorm, [N] each."""
    return cpu_from_logits.forward(*inputs)


@custom_op("rrgkern::token_logps_bwd", FromLogitsBackward)
def token_logps_bwd(*inputs: Any) -> Tensor:
    """Gradient of sum(coef * logps + coef_entropy * entropy), shaped as logits."""
    return cpu_from_logits.backward(*pack(FromLogitsBackward, inputs))


@custom_op("rrgkern::token_logps_bwd_", FromLogitsBackward, mutates=("logits",))
def token_logps_bwd_(*inputs: Any) -> None:
    """The same gradient, written over the logits."""
    cpu_from_logits.backward(*pack(FromLogitsBackward, inputs), inplace=True)


@token_logps_fwd.register_fake
def _(*inputs: Any) -> RowStats:
    x = FromLogits(*inputs)
    return _empty_stats(x.logits, len(x.targets), x.entropy)


@token_logps_bwd.register_fake
def _(*inputs: Any) -> Tensor:
    logits = pack(FromLogitsBackward, inputs).logits
    return logits.new_empty(logits.shape)


@token_logps_bwd_.register_fake
def _(*inputs: Any) -> None:
    return None


def _save_logits(ctx: Any, inputs: tuple[Any, ...], output: RowStats) -> None:
    x = FromLogits(*inputs)
    ctx.save_for_backward(x.logits, x.targets, *output)
    ctx.temperature = x.temperature
    ctx.set_materialize_grads(False)


def _backward_to_logits(ctx: Any, coef: Tensor | None, entropy: Tensor | None, *_: Any) -> Any:
    logits, targets, *stats = ctx.saved_tensors
    coefficients = _coefficients(coef, entropy, RowStats(*stats))
    if coefficients is None:
        return gradients(FromLogits)
    gradient = token_logps_bwd(*coefficients, logits, targets, *stats, ctx.temperature)
    return gradients(FromLogits, logits=gradient)


class FromHidden(NamedTuple):
    """hidden [N, H], weight [V, H], bias [V], targets [N]; `softcap` 0 for none."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    temperature: float
    softcap: float
    entropy: bool


class FromHiddenBackward(NamedTuple):
    """Coefficients [N], inputs and result of the forward, and which gradients are wanted."""

    coef: Tensor
    coef_entropy: Tensor | None
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    stats: RowStats
    temperature: float
    softcap: float
    want_hidden: bool
    want_weight: bool
    want_bias: bool


class FromHiddenBackwardInto(NamedTuple):
    """The same, and the tensor [V, H] to which the gradient of the weight is added."""

    weight_total: Tensor
    coef: Tensor
    coef_entropy: Tensor | None
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    stats: RowStats
    temperature: float
    softcap: float
    want_hidden: bool
    want_bias: bool


@custom_op("rrgkern::linear_token_logps_fwd", FromHidden)
def linear_token_logps_fwd(*inputs: Any) -> RowStats:
    """logps, entropy, shift, lognorm [N] each; entropy has size 0 when not asked for."""
    x = FromHidden(*inputs)
    return tiled_head.forward(x.hidden, x.targets, _head(x), x.entropy, CPU_TILING, cpu_tile)


@custom_op("rrgkern::linear_token_logps_bwd", FromHiddenBackward)
def linear_token_logps_bwd(*inputs: Any) -> tiled_head.Gradients:
    """Gradients of hidden, weight and bias; size 0 where not wanted."""
    x = pack(FromHiddenBackward, inputs)
    return tiled_head.backward(
        *(x.coef, x.coef_entropy, x.hidden, x.targets, _head(x), x.stats),
        *((x.want_hidden, x.want_weight, x.want_bias), CPU_TILING, cpu_tile),
    )


@custom_op(
    "rrgkern::linear_token_logps_bwd_into", FromHiddenBackwardInto, mutates=("weight_total",)
)
def linear_token_logps_bwd_into(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Gradients of hidden and bias; that of the weight is added to `weight_total`, by slices."""
    x = pack(FromHiddenBackwardInto, inputs)
    d_hidden, _, d_bias = tiled_head.backward(
        *(x.coef, x.coef_entropy, x.hidden, x.targets, _head(x), x.stats),
        *((x.want_hidden, True, x.want_bias), CPU_TILING, cpu_tile, x.weight_total),
    )
    return d_hidden, d_bias


@linear_token_logps_fwd.register_fake
def _(*inputs: Any) -> RowStats:
    x = FromHidden(*inputs)
    return _empty_stats(x.hidden, len(x.hidden), x.entropy)


@linear_token_logps_bwd.register_fake
def _(*inputs: Any) -> tiled_head.Gradients:
    x = pack(FromHiddenBackward, inputs)
    return tiled_head.Gradients(
        _empty_gradient(x.hidden, x.hidden, x.want_hidden),
        _empty_gradient(x.weight, x.hidden, x.want_weight),
        _empty_gradient(x.bias, x.hidden, x.want_bias),
    )


@linear_token_logps_bwd_into.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor]:
    x = pack(FromHiddenBackwardInto, inputs)
    d_hidden = _empty_gradient(x.hidden, x.hidden, x.want_hidden)
    return d_hidden, _empty_gradient(x.bias, x.hidden, x.want_bias)


def _save_hidden(ctx: Any, inputs: tuple[Any, ...], output: RowStats) -> None:
    x = FromHidden(*inputs)
    ctx.save_for_backward(x.hidden, x.weight, x.bias, x.targets, *output)
    ctx.temperature, ctx.softcap = x.temperature, x.softcap
    ctx.set_materialize_grads(False)


def _backward_to_hidden(ctx: Any, coef: Tensor | None, entropy: Tensor | None, *_: Any) -> Any:
    hidden, weight, bias, targets, *stats = ctx.saved_tensors
    coefficients = _coefficients(coef, entropy, RowStats(*stats))
    if coefficients is None:
        return gradients(FromHidden)
    wanted = ctx.needs_input_grad[:3]
    found = linear_token_logps_bwd(
        *(*coefficients, hidden, weight, bias, targets, *stats),
        *(ctx.temperature, ctx.softcap, *wanted),
    )
    d_hidden, d_weight, d_bias = (
        g if want else None for g, want in zip(found, wanted, strict=True)
    )
    return gradients(FromHidden, hidden=d_hidden, weight=d_weight, bias=d_bias)


def _head(x: FromHidden | FromHiddenBackward | FromHiddenBackwardInto) -> Head:
    """The head whose products read their operands in the statistics' dtype."""
    return Head(x.weight, x.bias, x.temperature, x.softcap, operands=stats_dtype(x.hidden.dtype))


def _coefficients(
    coef: Tensor | None, coef_entropy: Tensor | None, stats: RowStats
) -> tuple[Tensor, Tensor | None] | None:
    """The gradients that came back to logps and entropy; None where neither did."""
    if not stats.entropy.numel():
        coef_entropy = None
    if coef is None and coef_entropy is not None:
        coef = torch.zeros_like(coef_entropy)
    return None if coef is None else (coef, coef_entropy)


def _empty_stats(like: Tensor, rows: int, entropy: bool) -> RowStats:
    sizes = (rows, rows if entropy else 0, rows, rows)
    return RowStats(*(like.new_empty(size, dtype=stats_dtype(like.dtype)) for size in sizes))


def _empty_gradient(value: Tensor | None, like: Tensor, wanted: bool) -> Tensor:
    return torch.empty_like(value) if value is not None and wanted else like.new_empty(0)


token_logps_fwd.register_autograd(_backward_to_logits, setup_context=_save_logits)
linear_token_logps_fwd.register_autograd(_backward_to_hidden, setup_context=_save_hidden)
FROM_LOGITS = "rrgkern.logps.triton_from_logits"
FROM_HIDDEN = "rrgkern.logps.triton_from_hidden"
register_triton(token_logps_fwd, FROM_LOGITS, "token_logps_fwd")
register_triton(token_logps_bwd, FROM_LOGITS, "token_logps_bwd")
register_triton(token_logps_bwd_, FROM_LOGITS, "token_logps_bwd_")
register_triton(linear_token_logps_fwd, FROM_HIDDEN, "fwd")
register_triton(linear_token_logps_bwd, FROM_HIDDEN, "bwd")
register_triton(linear_token_logps_bwd_into, FROM_HIDDEN, "bwd_into")
