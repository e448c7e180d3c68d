"""Write gradients in place, where a copy would cost a whole [V, H].

Gradients that the forward left are scaled where they lie, and handed to autograd as they are. And
the weight's gradient can go straight into `weight.grad`, each slice when it is complete. Its
gradient hooks do not fire, so DDP and FSDP2 are refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import direct
from rrgkern.first_order import first_order, link
from rrgkern.logps.head import NeedsGrad
from rrgkern.logps.op import linear_token_logps_bwd_into
from rrgkern.ops import gradients, pack
from rrgkern.policy_loss.linear.forward import Forward
from rrgkern.policy_loss.linear.inputs import LinearInputs
from rrgkern.policy_loss.linear.op import forward_of, linear_policy_loss_scale_

HOW = "leave accumulate_weight_grad False"
ONCE = (
    "a second backward through one linear_policy_loss in mode {!r}: the first scaled and gave away "
    "its gradients; choose mode 'recompute', which keeps what a second one needs"
)


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
    """`linear_policy_loss_fwd` in the modes whose forward leaves gradients behind.

    The op counts its writing as a change of what is saved here, so a second backward raises
    instead of scaling twice.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Inputs of the op -> loss and metrics."""
        call = pack(LinearInputs, inputs)
        found = Forward(*forward_of(call)(*inputs))
        ctx.save_for_backward(*found.gradients)
        ctx.dtype, ctx.mode, ctx.spent = call.hidden.dtype, call.mode, False
        ctx.sources = link(call.hidden), link(call.weight), link(call.bias)
        ctx.mark_non_differentiable(found.metrics)
        return found.loss, found.metrics

    @staticmethod
    @first_order("linear_policy_loss")
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight and bias."""
        try:
            d_hidden, d_weight, d_bias = ctx.saved_tensors
        except RuntimeError as error:
            if not ctx.spent:
                raise
            raise RuntimeError(ONCE.format(ctx.mode)) from error
        ctx.spent = True
        scale = direct(linear_policy_loss_scale_, grad_loss)
        scale(grad_loss, d_hidden, d_weight, d_bias)
        if scale is not linear_policy_loss_scale_:
            torch.autograd.graph.increment_version((d_hidden, d_weight, d_bias))
        needs_grad = NeedsGrad(*ctx.needs_input_grad[:3])
        return gradients(
            LinearInputs,
            hidden=d_hidden.to(ctx.dtype) if needs_grad.hidden else None,
            weight=d_weight if needs_grad.weight else None,
            bias=d_bias if needs_grad.bias else None,
        )


class LossIntoGrad(torch.autograd.Function):
    """`linear_policy_loss_fwd` in mode "recompute", whose backward adds to `weight.grad`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Inputs of the op -> loss and metrics."""
        x = pack(LinearInputs, inputs)
        found = Forward(*forward_of(x)(*inputs))
        # The parameter itself, not what saved tensors may make of it: its .grad is needed.
        ctx.parameter = x.weight
        ctx.temperature, ctx.softcap = x.temperature, x.softcap
        ctx.save_for_backward(x.hidden, x.weight, x.bias, x.targets, *found.per_row)
        ctx.mark_non_differentiable(found.metrics)
        return found.loss, found.metrics

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden and bias; that of the weight is where it belongs already."""
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "accumulate_weight_grad is True and the backward has create_graph=True; what is "
                f"added to weight.grad has no graph: {HOW}"
            )
        hidden, weight, bias, targets, coef, coef_entropy, *stats = ctx.saved_tensors
        needs_grad = NeedsGrad(*ctx.needs_input_grad[:3])
        if ctx.parameter.grad is None:
            ctx.parameter.grad = torch.zeros_like(ctx.parameter)
        d_hidden, d_bias = linear_token_logps_bwd_into(
            ctx.parameter.grad,
            coef * grad_loss,
            coef_entropy * grad_loss if len(coef_entropy) else None,
            *(hidden, weight, bias, targets, *stats, ctx.temperature, ctx.softcap),
            *(needs_grad.hidden, True, bias is not None and needs_grad.bias),
        )
        return gradients(
            LinearInputs,
            hidden=d_hidden if needs_grad.hidden else None,
            bias=d_bias if needs_grad.bias else None,
        )
