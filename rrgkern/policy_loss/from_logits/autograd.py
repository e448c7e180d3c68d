"""Hand autograd a gradient that the forward made, or that replaces the logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rrgkern import dispatch
from rrgkern.first_order import first_order, link
from rrgkern.logps.op import token_logps_bwd_, token_logps_fwd
from rrgkern.ops import pack
from rrgkern.overwritten import HeldLogits
from rrgkern.policy_loss.from_logits.op import (
    policy_loss_from_logits_fwd,
    policy_loss_from_logits_fwd_,
    policy_loss_from_logits_scale_,
)
from rrgkern.policy_loss.inputs import LogitsInputs
from rrgkern.policy_loss.op import loss_of_logps

ONCE = (
    "a second backward through one policy_loss_from_logits: the first gave its gradient away; call "
    "policy_loss_from_logits again for each, or compose token_logps and policy_loss, which keep "
    "what a second one needs"
)


direct = partial(dispatch.direct, devices=("cpu", "cuda"))


class Fused(torch.autograd.Function):
    """The gradient is made in the forward; the backward multiplies it by the upstream gradient."""

    @staticmethod
    def forward(ctx: Any, inplace: bool, logits: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        """Loss and metrics; after `inplace` the arguments are the fields of `LogitsInputs`."""
        ctx.sources = (link(logits),)
        ctx.held = HeldLogits(logits) if inplace else None
        if inplace:
            gradient = logits.data
            with ctx.held.overwriting():
                loss, active, metrics = direct(policy_loss_from_logits_fwd_, gradient)(
                    gradient, *others
                )
        else:
            loss, gradient, active, metrics = direct(policy_loss_from_logits_fwd, logits)(
                logits, *others, True
            )
        ctx.spent = False
        ctx.save_for_backward(gradient, active)
        ctx.mark_non_differentiable(metrics)
        ctx.set_materialize_grads(False)
        return loss, metrics

    @staticmethod
    @first_order("policy_loss_from_logits")
    def backward(ctx: Any, grad_loss: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        """The gradient of the logits; the upstream gradient is read on the device."""
        if grad_loss is None:
            return (None,) * len(ctx.needs_input_grad)
        _spend(ctx)
        gradient, active = ctx.saved_tensors
        scale = direct(policy_loss_from_logits_scale_, gradient)
        if ctx.held is None:
            scale(gradient, active, grad_loss)
            if scale is not policy_loss_from_logits_scale_:
                torch.autograd.graph.increment_version(gradient)
        else:
            ctx.held.check()
            with ctx.held.overwriting():
                scale(gradient, active, grad_loss)
            ctx.held = None  # keeps the logits
        return None, gradient, *(None,) * (len(ctx.needs_input_grad) - 2)


# Without the wrapper in Python, which is there for functorch: that gets the two rooms.
fused: Callable[..., Any] = super(torch.autograd.Function, Fused).apply


class ComposedInPlace(torch.autograd.Function):
    """`token_logps`, `policy_loss` and back, the gradient written over the logits at the end."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        """Loss and metrics; the arguments are the fields of `LogitsInputs`."""
        ctx.sources = (link(logits),)
        _, targets, policy, temperature, entropy = pack(LogitsInputs, (logits, *others))
        stats = token_logps_fwd(logits, targets, temperature, entropy, policy.mask)
        loss, coef, coef_entropy, metrics = loss_of_logps(
            stats[0], stats[1] if entropy else None, policy
        )
        ctx.temperature, ctx.spent = temperature, False
        ctx.held = HeldLogits(logits)
        ctx.save_for_backward(logits.data, targets, *stats, coef, coef_entropy)
        ctx.mark_non_differentiable(metrics)
        ctx.set_materialize_grads(False)
        return loss, metrics

    @staticmethod
    @first_order("policy_loss_from_logits")
    def backward(ctx: Any, grad_loss: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        """The gradient, in the memory of the logits."""
        if grad_loss is None:
            return (None,) * len(ctx.needs_input_grad)
        _spend(ctx)
        gradient, targets, *stats, coef, coef_entropy = ctx.saved_tensors
        ctx.held.check()
        bonus = coef_entropy * grad_loss if coef_entropy.numel() else None
        with ctx.held.overwriting():
            token_logps_bwd_(coef * grad_loss, bonus, gradient, targets, *stats, ctx.temperature)
        ctx.held = None  # keeps the logits
        return gradient, *(None,) * (len(ctx.needs_input_grad) - 1)


def _spend(ctx: Any) -> None:
    if ctx.spent:
        raise RuntimeError(ONCE)
    ctx.spent = True
