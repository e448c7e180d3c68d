"""The dispatcher: `rrgkern::linear_token_logps_{fwd,bwd}`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.linear_token_logps import chunked, torch_tile
from rrgkern.linear_token_logps.head import Head, Tiling
from rrgkern.token_logps.row_stats import RowStats, stats_dtype

# A tile and a slice of each matrix stay in the cache of a core.
CPU_TILING = Tiling(columns=1024, elements=1 << 19)

Four = tuple[Tensor, Tensor, Tensor, Tensor]
Three = tuple[Tensor, Tensor, Tensor]


@torch.library.custom_op("rrgkern::linear_token_logps_fwd", mutates_args=())
def linear_token_logps_fwd(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float,
    softcap: float,
    entropy: bool,
) -> Four:
    """logps, entropy, shift, lognorm [N] each; entropy has size 0 when not asked for."""
    head = Head(weight, bias, temperature, softcap, operands=stats_dtype(hidden.dtype))
    return chunked.forward(hidden, targets, head, entropy, CPU_TILING, torch_tile)


@linear_token_logps_fwd.register_fake
def _(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float,
    softcap: float,
    entropy: bool,
) -> Four:
    def per_row(rows: int) -> Tensor:
        return hidden.new_empty(rows, dtype=stats_dtype(hidden.dtype))

    rows = hidden.shape[0]
    return per_row(rows), per_row(rows if entropy else 0), per_row(rows), per_row(rows)


@torch.library.custom_op("rrgkern::linear_token_logps_bwd", mutates_args=())
def linear_token_logps_bwd(
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
    softcap: float,
    want_hidden: bool,
    want_weight: bool,
    want_bias: bool,
) -> Three:
    """Gradients of hidden, weight and bias; size 0 where not wanted."""
    head = Head(weight, bias, temperature, softcap, operands=stats_dtype(hidden.dtype))
    return chunked.backward(
        *(coef, coef_entropy, hidden, targets, head, RowStats(logps, entropy, shift, lognorm)),
        *((want_hidden, want_weight, want_bias), CPU_TILING, torch_tile),
    )


@linear_token_logps_bwd.register_fake
def _(
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
    softcap: float,
    want_hidden: bool,
    want_weight: bool,
    want_bias: bool,
) -> Three:
    return (
        torch.empty_like(hidden) if want_hidden else hidden.new_empty(0),
        torch.empty_like(weight) if want_weight else hidden.new_empty(0),
        torch.empty_like(bias) if bias is not None and want_bias else hidden.new_empty(0),
    )


@torch.library.custom_op("rrgkern::linear_token_logps_bwd_into", mutates_args=("weight_total",))
def linear_token_logps_bwd_into(
    weight_total: Tensor,
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
    softcap: float,
    want_hidden: bool,
    want_bias: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of hidden and bias; that of the weight is added to `weight_total`, by slices."""
    head = Head(weight, bias, temperature, softcap, operands=stats_dtype(hidden.dtype))
    d_hidden, _, d_bias = chunked.backward(
        *(coef, coef_entropy, hidden, targets, head, RowStats(logps, entropy, shift, lognorm)),
        *((want_hidden, True, want_bias), CPU_TILING, torch_tile, weight_total),
    )
    return d_hidden, d_bias


@linear_token_logps_bwd_into.register_fake
def _(
    weight_total: Tensor,
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
    softcap: float,
    want_hidden: bool,
    want_bias: bool,
) -> tuple[Tensor, Tensor]:
    return (
        torch.empty_like(hidden) if want_hidden else hidden.new_empty(0),
        torch.empty_like(bias) if bias is not None and want_bias else hidden.new_empty(0),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Four) -> None:
    hidden, weight, bias, targets, ctx.temperature, ctx.softcap, _ = inputs
    ctx.save_for_backward(hidden, weight, bias, targets, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, coef: Tensor | None, coef_entropy: Tensor | None, *_: Any) -> Any:
    hidden, weight, bias, targets, *stats = ctx.saved_tensors
    if not stats[1].numel():
        coef_entropy = None
    if coef is None:
        if coef_entropy is None:
            return (None,) * 7
        coef = torch.zeros_like(coef_entropy)
    wanted = ctx.needs_input_grad[:3]
    gradients = linear_token_logps_bwd(
        *(coef, coef_entropy, hidden, weight, bias, targets),
        *(*stats, ctx.temperature, ctx.softcap, *wanted),
    )
    returned = [g if want else None for g, want in zip(gradients, wanted, strict=True)]
    return *returned, None, None, None, None


linear_token_logps_fwd.register_autograd(_backward, setup_context=_setup_context)
TRITON = "rrgkern.linear_token_logps.triton_linear_token_logps"
register_triton(linear_token_logps_fwd, TRITON, "fwd")
register_triton(linear_token_logps_bwd, TRITON, "bwd")
register_triton(linear_token_logps_bwd_into, TRITON, "bwd_into")
