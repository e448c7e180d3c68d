"""Register `rrgkern::linear_policy_loss_fwd`, and the scaling that is its backward.

Only the backward of mode "recompute" is more: that of `linear_token_logps`, with the loss's
coefficients. `autograd.py` has the backwards that write where a copy would cost a whole [V, H].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.dispatch import direct, register_csrc, register_triton
from rrgkern.first_order import first_order
from rrgkern.logps.from_hidden import CSRC_TILES, TORCH_TILES
from rrgkern.logps.head import NeedsGrad
from rrgkern.logps.online_softmax import stats_dtype
from rrgkern.logps.op import linear_token_logps_bwd
from rrgkern.ops import custom_op, gradients, pack
from rrgkern.policy_loss.linear import cpu_kernels
from rrgkern.policy_loss.linear.forward import Forward, forward, gradient_dtype
from rrgkern.policy_loss.linear.gradients import Plan
from rrgkern.policy_loss.linear.inputs import LinearInputs
from rrgkern.policy_loss.reference import METRICS

# The gradient in the forward keeps 64 MiB of fp32 logits.
CPU_PLAN = Plan(TORCH_TILES, 1 << 24, cpu_kernels)
CSRC_PLAN = CPU_PLAN._replace(tiles=CSRC_TILES)


@custom_op("rrgkern::linear_policy_loss_fwd", LinearInputs)
def linear_policy_loss_fwd(*inputs: Any) -> Forward:
    """Serve with PyTorch between the products."""
    return _forward(CPU_PLAN, *inputs)


def _forward(plan: Plan, *inputs: Any) -> Forward:
    x = pack(LinearInputs, inputs)
    head = plan.tiles.kernels.head_of(x.rows)
    return forward(x._replace(targets=x.targets.contiguous()), head, plan)


@linear_policy_loss_fwd.register_fake
def _(*inputs: Any) -> Forward:
    x = pack(LinearInputs, inputs)
    hidden, wide, again = x.hidden, stats_dtype(x.hidden.dtype), x.mode == "recompute"

    def per_row(asked: bool) -> Tensor:
        return hidden.new_empty(hidden.shape[0] if asked else 0, dtype=wide)

    def like(shape: torch.Size, asked: bool, dtype: torch.dtype) -> Tensor:
        return hidden.new_empty(shape if asked and not again else (0,), dtype=dtype)

    return Forward(
        loss=hidden.new_empty((), dtype=wide),
        metrics=hidden.new_empty(len(METRICS), dtype=wide),
        coef=per_row(again),
        coef_entropy=per_row(again and x.policy.variant.entropy_coef != 0),
        logps=per_row(again),
        entropy=per_row(again and x.entropy),
        shift=per_row(again),
        lognorm=per_row(again),
        d_hidden=like(hidden.shape, x.needs_grad.hidden, gradient_dtype(hidden.dtype)),
        d_weight=like(x.weight.shape, x.needs_grad.weight, x.weight.dtype),
        d_bias=like(
            x.weight.shape[:1],
            x.bias is not None and x.needs_grad.bias,
            (x.weight if x.bias is None else x.bias).dtype,
        ),
    )


@torch.library.custom_op(
    "rrgkern::linear_policy_loss_scale_", mutates_args=("d_hidden", "d_weight", "d_bias")
)
def linear_policy_loss_scale_(
    grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor
) -> None:
    """Multiply the gradients by `grad_loss`, 0-d, in place; it is read on the device."""
    for gradient in (d_hidden, d_weight, d_bias):
        cpu_kernels.scale(gradient, grad_loss, gradient)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, found = pack(LinearInputs, inputs), Forward(*output)
    ctx.temperature, ctx.softcap, ctx.mode = x.temperature, x.softcap, x.mode
    ctx.set_materialize_grads(False)
    ctx.dtype = x.hidden.dtype
    if x.mode == "recompute":
        ctx.save_for_backward(x.hidden, x.weight, x.bias, x.targets, *found.per_row)
    else:
        ctx.save_for_backward(*found.gradients)
        ctx.sources = x.hidden, x.weight, x.bias


@first_order("linear_policy_loss")
def _backward(
    ctx: Any, grad_loss: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_loss is None:
        return gradients(LinearInputs)
    needs_grad = NeedsGrad(*ctx.needs_input_grad[:3])
    if ctx.mode == "recompute":
        hidden, weight, bias, targets, coef, coef_entropy, *stats = ctx.saved_tensors
        found = direct(linear_token_logps_bwd, grad_loss, hidden, weight)(
            coef * grad_loss,
            coef_entropy * grad_loss if len(coef_entropy) else None,
            *(hidden, weight, bias, targets, *stats, ctx.temperature, ctx.softcap, *needs_grad),
        )
    else:
        wide = grad_loss.dtype  # rounding the factor to 16 bits would shift all of them
        found = [(g.to(wide) * grad_loss).to(g.dtype) for g in ctx.saved_tensors]
    d_hidden, d_weight, d_bias = found
    return gradients(
        LinearInputs,
        hidden=d_hidden.to(ctx.dtype) if needs_grad.hidden else None,
        weight=d_weight if needs_grad.weight else None,
        bias=d_bias if needs_grad.bias else None,
    )


class _Direct(torch.autograd.Function):
    """`linear_policy_loss_fwd` in mode "recompute" without the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        found = Forward(*forward_of(pack(LinearInputs, inputs))(*inputs))
        _setup_context(ctx, inputs, found)
        ctx.mark_non_differentiable(found.metrics)
        return found.loss, found.metrics

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grad_loss)


def forward_of(x: LinearInputs) -> Callable[..., tuple[Tensor, ...]]:
    """The op, or the CPU launcher where nobody could tell."""
    tensors = (x.hidden, x.weight, x.bias, x.targets, *x.policy.tensors)
    return direct(linear_policy_loss_fwd, *[tensor for tensor in tensors if tensor is not None])


def loss_of_hidden(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Loss and metrics; differentiable in mode "recompute"."""
    if torch.compiler.is_compiling():
        loss, metrics = linear_policy_loss_fwd(*inputs)[:2]
        return loss, metrics
    x = pack(LinearInputs, inputs)
    forward = forward_of(x)
    if forward is not linear_policy_loss_fwd and any(x.needs_grad):
        loss, metrics = _Direct.apply(*inputs)
        return loss, metrics
    found = Forward(*forward(*inputs))
    return found.loss, found.metrics


def scale_in_place(grad_loss: Tensor, *gradients: Tensor) -> None:
    """Serve `rrgkern::linear_policy_loss_scale_` on CPUs: nothing is written where it is 1."""
    factor = float(grad_loss)
    for gradient in filter(Tensor.numel, gradients):
        rows = gradient if gradient.ndim == 2 else gradient[None]
        every = torch.ones(len(rows), dtype=torch.bool)
        csrc.load().scale_rows_cpu(rows, every, factor, torch.get_num_threads())


linear_policy_loss_fwd.register_autograd(_backward, setup_context=_setup_context)
TRITON = "rrgkern.policy_loss.linear.triton_kernels"
register_triton(linear_policy_loss_fwd, TRITON, "PLAN", _forward)
register_csrc(linear_policy_loss_fwd, partial(_forward, CSRC_PLAN), ("cpu",), "logps")
register_triton(linear_policy_loss_scale_, TRITON, "scale_in_place")
register_csrc(linear_policy_loss_scale_, scale_in_place, ("cpu",), "logps")
