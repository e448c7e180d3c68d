"""Backwards that write in place, where a copy would cost a whole [V, H].

Gradients that the forward left are scaled where they lie, and handed to autograd as they are. And
the weight's gradient can go straight into `weight.grad`, each slice when it is complete. Whoever
waits for that gradient by a hook, as DDP and FSDP2 do, waits in vain: refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rrgkern.logps.op import linear_token_logps_bwd_into
from rrgkern.policy_loss.linear.op import linear_grpo_loss_fwd, linear_grpo_loss_scale_

HOW = "leave accumulate_weight_grad False"


def check_accumulates(weight: Tensor) -> None:
    """Raise ValueError where a gradient added behind autograd's back would be lost or wrong."""
    if torch.compiler.is_compiling():
        raise ValueError(f"accumulate_weight_grad is True under torch.compile; {HOW}")
    if not (weight.is_leaf and weight.requires_grad):
        raise ValueError(
            "accumulate_weight_grad is True and weight is no leaf that requires a gradient, so it "
            f"has no .grad to add to; {HOW}"
        )
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        ranks = distributed.get_world_size()
        if ranks > 1:
            raise ValueError(
                f"accumulate_weight_grad is True with {ranks} ranks; the hooks by which DDP and "
                f"FSDP2 sum gradients would not fire: {HOW}"
            )
    # None until the first hook is registered.
    hooks = weight._backward_hooks, getattr(weight, "_post_accumulate_grad_hooks", None)
    if any(hooks):
        raise ValueError(
            f"accumulate_weight_grad is True and weight has a gradient hook, which would not fire; "
            f"{HOW}"
        )


class LossInPlace(torch.autograd.Function):
    """`linear_grpo_loss_fwd` in the modes whose forward leaves gradients behind.

    The op counts its writing as a change of what is saved here, so a second backward raises
    instead of scaling twice.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Inputs of the op -> loss and metrics."""
        loss, metrics, *_, d_hidden, d_weight, d_bias = linear_grpo_loss_fwd(*inputs)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.dtype = inputs[0].dtype
        ctx.mark_non_differentiable(metrics)
        return loss, metrics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> Any:
        """Gradients of hidden, weight and bias."""
        gradients = ctx.saved_tensors
        linear_grpo_loss_scale_(grad_loss, *gradients)
        wanted = ctx.needs_input_grad
        returned = [
            g.to(ctx.dtype) if want else None for g, want in zip(gradients, wanted, strict=False)
        ]
        return *returned, *(None,) * (len(wanted) - len(returned))


class LossIntoGrad(torch.autograd.Function):
    """`linear_grpo_loss_fwd` in mode "recompute", whose backward adds to `weight.grad`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Inputs of the op -> loss and metrics."""
        hidden, weight, bias, targets = inputs[:4]
        loss, metrics, *rest = linear_grpo_loss_fwd(*inputs)
        # The parameter itself, not what saved tensors may make of it: its .grad is needed.
        ctx.parameter = weight
        ctx.temperature, ctx.softcap = inputs[16:18]
        ctx.save_for_backward(hidden, weight, bias, targets, *rest[:6])
        ctx.mark_non_differentiable(metrics)
        return loss, metrics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> Any:
        """Gradients of hidden and bias; that of the weight is where it belongs already."""
        hidden, weight, bias, targets, coef, coef_entropy, *stats = ctx.saved_tensors
        want_hidden, _, want_bias = ctx.needs_input_grad[:3]
        if ctx.parameter.grad is None:
            ctx.parameter.grad = torch.zeros_like(ctx.parameter)
        with torch.no_grad():
            d_hidden, d_bias = linear_token_logps_bwd_into(
                ctx.parameter.grad,
                coef * grad_loss,
                coef_entropy * grad_loss if len(coef_entropy) else None,
                *(hidden, weight, bias, targets, *stats, ctx.temperature, ctx.softcap),
                *(want_hidden, bias is not None and want_bias),
            )
        gradients = d_hidden if want_hidden else None, None, d_bias if want_bias else None
        return *gradients, *(None,) * (len(ctx.needs_input_grad) - 3)
