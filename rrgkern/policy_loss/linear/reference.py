"""The definition in plain PyTorch: [N, V] logits, `token_logps` on them, `policy_loss` on those."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients
from rrgkern.logps.reference import (
    linear_token_logps_reference,
    linear_token_logps_reference_backward,
)
from rrgkern.policy_loss.linear.policy import Policy
from rrgkern.policy_loss.reference import policy_loss_reference
from rrgkern.policy_loss.terms import terms


def forward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    policy: Policy,
    temperature: float = 1.0,
    softcap: float = 0.0,
) -> Tensor:
    """The loss, differentiable by autograd in hidden, weight and bias."""
    logps, entropy = _logps(hidden, weight, bias, targets, policy, temperature, softcap)
    arguments: tuple[Any, ...] = (*policy.arguments(logps, entropy)[:-1], policy.variant)
    t = terms(*arguments)
    return (t.scale * t.loss).sum()


class Result(NamedTuple):
    """Loss 0-d, its gradients, and the metrics in the order of `policy_loss.reference.METRICS`."""

    loss: Tensor
    hidden: Tensor
    weight: Tensor
    bias: Tensor
    metrics: Tensor


def forward_and_backward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    policy: Policy,
    temperature: float = 1.0,
    softcap: float = 0.0,
) -> Result:
    """Loss, explicit gradients and metrics; what stands in masked rows is never read."""
    head = (weight, bias)
    logps, entropy = _logps(hidden, *head, targets, policy, temperature, softcap)
    loss, coef, coef_entropy, metrics = policy_loss_reference(*policy.arguments(logps, entropy))
    rows = _scored(policy, len(hidden))
    at_rows, d_weight, d_bias = linear_token_logps_reference_backward(
        Coefficients(coef, coef_entropy if len(coef_entropy) else None).rows(rows),
        FromHidden(hidden[rows], *head, targets[rows], temperature, softcap, entropy=True),
    )
    d_hidden = torch.zeros_like(hidden).index_copy(0, rows, at_rows)
    return Result(loss, d_hidden, d_weight, d_bias, metrics)


def _logps(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    policy: Policy,
    temperature: float,
    softcap: float,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies [N], 0 where masked."""
    rows = _scored(policy, len(hidden))
    found = linear_token_logps_reference(
        hidden[rows], weight, bias, targets[rows], temperature, softcap
    )
    logps, entropy = (x.new_zeros(len(hidden)).index_copy(0, rows, x) for x in found)
    return logps, entropy


def _scored(policy: Policy, rows: int) -> Tensor:
    if policy.mask is None:
        return torch.arange(rows, device=policy.offsets.device)
    return policy.mask.nonzero().flatten()
