"""Register the ops behind `policy_loss`: the forward makes the gradient, the backward scales it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import direct, register_csrc, register_triton
from rrgkern.first_order import first_order, made_already
from rrgkern.ops import custom_op, flatten, gradients, pack
from rrgkern.policy_loss import csrc_launch
from rrgkern.policy_loss.inputs import LogpsInputs, PolicyInputs
from rrgkern.policy_loss.reference import LossOutputs, policy_loss_reference
from rrgkern.policy_loss.spec import PolicyLoss


@custom_op("rrgkern::policy_loss_fwd", LogpsInputs)
def policy_loss_fwd(*inputs: Any) -> LossOutputs:
    """Serve with the reference."""
    return policy_loss_reference(*inputs)


@policy_loss_fwd.register_fake
def _fwd_fake(*inputs: Any) -> LossOutputs:
    return csrc_launch.empty_outputs(pack(LogpsInputs, inputs))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    outputs = LossOutputs(*output)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(outputs.coef, outputs.coef_entropy)
    call = pack(LogpsInputs, inputs)
    ctx.sources = call.logps, call.entropy


@first_order("policy_loss")
def _backward(
    ctx: Any, grad_loss: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_loss is None:
        return gradients(LogpsInputs)
    coef, coef_entropy = ctx.saved_tensors
    entropy = coef_entropy * grad_loss if coef_entropy.numel() else None
    return gradients(LogpsInputs, logps=coef * grad_loss, entropy=entropy)


policy_loss_fwd.register_autograd(_backward, setup_context=_setup_context)
register_triton(policy_loss_fwd, "rrgkern.policy_loss.triton_policy_loss", "launch")


register_csrc(policy_loss_fwd, csrc_launch.launch, ("cpu",), "policy_loss")


_apply = made_already("policy_loss")


def loss_as_passed(
    logps: Tensor, entropy: Tensor | None, others: Sequence[Tensor | None], spec: PolicyLoss
) -> tuple[Tensor, Tensor] | None:
    """Loss and metrics by one call of csrc, which checks the arguments too.

    None where the op must serve, or where an argument is wrong or has to be converted first.
    """
    advantages, offsets, scale = others[:3]
    if logps is None or advantages is None or offsets is None or scale is None:
        return None
    if direct(policy_loss_fwd, logps, entropy, *others) is policy_loss_fwd:
        return None
    # These arguments it would take for constants, and these advantages for those of sequences.
    if any(x is not None and x.requires_grad for x in others):
        return None
    if offsets.numel() == logps.numel() + 1:
        return None
    outputs = csrc_launch.as_passed(logps, entropy, others, spec)
    if outputs is None:
        return None
    if logps.requires_grad or (entropy is not None and entropy.requires_grad):
        return _apply(logps, entropy, outputs[:3]), outputs[3]
    return outputs[0], outputs[3]


def loss_and_metrics(
    logps: Tensor, entropy: Tensor | None, policy: PolicyInputs
) -> tuple[Tensor, Tensor]:
    """Loss of log-probabilities and entropies [N], contiguous, differentiable; and metrics."""
    if not torch.compiler.is_compiling():  # which cannot trace how a variant is decoded
        served = loss_as_passed(logps, entropy, policy.tensors, policy.variant)
        if served is not None:
            return served
    outputs = loss_of_logps(logps, entropy, policy)
    return outputs.loss, outputs.metrics


def loss_of_logps(logps: Tensor, entropy: Tensor | None, policy: PolicyInputs) -> LossOutputs:
    """Loss, coefficients and metrics; no gradient flows where csrc is called directly."""
    call = LogpsInputs(logps, entropy, policy)
    if not logps.requires_grad and _direct(logps, entropy, policy):
        return csrc_launch.loss_and_coefficients(call)
    return LossOutputs(*policy_loss_fwd(*flatten(call)))


def _direct(logps: Tensor, entropy: Tensor | None, policy: PolicyInputs) -> bool:
    return direct(policy_loss_fwd, logps, entropy, *policy.tensors) is not policy_loss_fwd
