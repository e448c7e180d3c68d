"""Define the loss from logits: `token_logps`, then the policy loss, then back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import Coefficients
from rrgkern.logps.reference import token_logps_reference, token_logps_reference_backward
from rrgkern.ops import flatten, pack
from rrgkern.policy_loss.inputs import LogitsInputs, LogpsInputs
from rrgkern.policy_loss.reference import policy_loss_reference


class LogitsOutputs(NamedTuple):
    """Results of `policy_loss_from_logits_fwd`: loss and metrics fp32, fp64 for fp64 logits."""

    loss: Tensor  # 0-d
    gradient: Tensor  # of the logits, in their shape and dtype
    active: Tensor  # [N] bool, the rows that have one
    metrics: Tensor  # as the policy loss returns them


def from_logits_reference(*inputs: Any) -> LogitsOutputs:
    """Loss, gradient and metrics; the arguments are the fields of `LogitsInputs`.

    The gradient is exactly 0 in rows that `mask` leaves out.
    """
    whole, targets, policy, temperature, with_entropy = pack(LogitsInputs, inputs)
    check_targets(targets, whole.shape[-1], policy.mask)
    logits = whole.reshape(len(targets), whole.shape[-1])
    if policy.mask is not None:
        logits = torch.where(policy.mask[:, None], logits, 0)
        targets = torch.where(policy.mask, targets, 0)
    logps, entropy = token_logps_reference(logits, targets, temperature)
    call = LogpsInputs(logps, entropy if with_entropy else None, policy)
    loss, coef, coef_entropy, metrics = policy_loss_reference(*flatten(call))
    bonus = coef_entropy if coef_entropy.numel() else None
    gradient = token_logps_reference_backward(coef, bonus, logits, targets, temperature)
    gradient = gradient.reshape(whole.shape)
    return LogitsOutputs(loss, gradient, Coefficients(coef, bonus).active(), metrics)
