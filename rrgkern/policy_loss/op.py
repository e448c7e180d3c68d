"""Register the ops behind `policy_loss`: the forward makes the gradient, the backward scales it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.ops import custom_op, flatten, gradients, pack
from rrgkern.policy_loss.inputs import LogpsInputs, PolicyInputs
from rrgkern.policy_loss.reference import METRICS, LossOutputs, policy_loss_reference


@custom_op("rrgkern::policy_loss_fwd", LogpsInputs)
def policy_loss_fwd(*inputs: Any) -> LossOutputs:
    """Serve with the reference."""
    return policy_loss_reference(*inputs)


@policy_loss_fwd.register_fake
def _fwd_fake(*inputs: Any) -> LossOutputs:
    logps, entropy, policy = pack(LogpsInputs, inputs)
    in_loss = entropy is not None and policy.variant.entropy_coef != 0
    return LossOutputs(
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
    outputs = LossOutputs(*output)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(outputs.coef, outputs.coef_entropy)


def _backward(
    ctx: Any, grad_loss: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_loss is None:
        return gradients(LogpsInputs)
    grad_logps, grad_entropy = policy_loss_bwd(grad_loss, *ctx.saved_tensors)
    entropy = grad_entropy if grad_entropy.numel() else None
    return gradients(LogpsInputs, logps=grad_logps, entropy=entropy)


policy_loss_fwd.register_autograd(_backward, setup_context=_setup_context)
register_triton(policy_loss_fwd, "rrgkern.policy_loss.triton_policy_loss", "launch")


def loss_of_logps(logps: Tensor, entropy: Tensor | None, policy: PolicyInputs) -> LossOutputs:
    """Call `policy_loss_fwd` on log-probabilities and entropies [N], contiguous."""
    return LossOutputs(*policy_loss_fwd(*flatten(LogpsInputs(logps, entropy, policy))))
