"""The ops behind `policy_loss`: the forward takes the gradient along, the backward is a product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.policy_loss.reference import METRICS, policy_loss_reference
from rrgkern.policy_loss.spec import PolicyLoss


@torch.library.custom_op("rrgkern::policy_loss_fwd", mutates_args=())
def policy_loss_fwd(
    logps: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    entropy: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss 0-d, coef [N], coef_entropy [N] or size 0, metrics [len(METRICS)]."""
    return policy_loss_reference(
        logps,
        advantages,
        offsets,
        scale,
        old,
        ref,
        sampler,
        weight,
        entropy,
        on_policy,
        mask,
        advantage_per_token,
        scale_per_token,
        spec,
    )


@policy_loss_fwd.register_fake
def _fwd_fake(
    logps: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    entropy: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    in_loss = entropy is not None and PolicyLoss.decode(spec).entropy_coef != 0
    return (
        logps.new_empty(()),
        torch.empty_like(logps),
        torch.empty_like(logps) if in_loss else logps.new_empty(0),
        logps.new_empty(len(METRICS)),
    )


@torch.library.custom_op("rrgkern::policy_loss_bwd", mutates_args=())
def policy_loss_bwd(grad_loss: Tensor, coef: Tensor, coef_entropy: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of logps and entropy; `grad_loss`, 0-d, is read on the device."""
    return coef * grad_loss, coef_entropy * grad_loss


@policy_loss_bwd.register_fake
def _bwd_fake(grad_loss: Tensor, coef: Tensor, coef_entropy: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(coef), torch.empty_like(coef_entropy)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, coef, coef_entropy, _ = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(coef, coef_entropy)


def _backward(
    ctx: Any, grad_loss: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    gradients: list[Tensor | None] = [None] * 14
    if grad_loss is not None:
        coef, coef_entropy = ctx.saved_tensors
        grad_logps, grad_entropy = policy_loss_bwd(grad_loss, coef, coef_entropy)
        gradients[0] = grad_logps
        gradients[8] = grad_entropy if grad_entropy.numel() else None
    return tuple(gradients)


policy_loss_fwd.register_autograd(_backward, setup_context=_setup_context)
register_triton(policy_loss_fwd, "rrgkern.policy_loss.triton_policy_loss", "launch")
