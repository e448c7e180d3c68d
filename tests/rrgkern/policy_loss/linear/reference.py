"""Define the loss from hidden states: [N, V] logits, `token_logps`, then `policy_loss`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients
from rrgkern.logps.reference import (
    linear_token_logps_reference,
    linear_token_logps_reference_backward,
)
from rrgkern.ops import flatten
from rrgkern.policy_loss.inputs import LogpsInputs, PolicyInputs
from rrgkern.policy_loss.reference import policy_loss_reference
from rrgkern.policy_loss.terms import terms


class LinearCall(NamedTuple):
    """Arguments of the reference; shapes as in `linear_policy_loss`, `softcap` 0 for none."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    policy: PolicyInputs
    temperature: float = 1.0
    softcap: float = 0.0


def forward(call: LinearCall) -> Tensor:
    """The loss, differentiable by autograd in hidden, weight and bias."""
    t = terms(*logps_and_entropy(call), call.policy)
    return (t.scale * t.loss).sum()


class Result(NamedTuple):
    """Loss 0-d, its gradients, and the metrics in the order of `policy_loss.reference.METRICS`."""

    loss: Tensor
    hidden: Tensor
    weight: Tensor
    bias: Tensor
    metrics: Tensor


def forward_and_backward(call: LinearCall) -> Result:
    """Loss, explicit gradients and metrics; what stands in masked rows is never read."""
    logps, entropy = logps_and_entropy(call)
    loss, coef, coef_entropy, metrics = policy_loss_reference(
        *flatten(LogpsInputs(logps, entropy, call.policy))
    )
    rows = _scored(call)
    coefficients = Coefficients(coef, coef_entropy if len(coef_entropy) else None).rows(rows)
    head = FromHidden(
        *(call.hidden[rows], call.weight, call.bias, call.targets[rows]),
        *(call.temperature, call.softcap),
        entropy=True,
    )
    at_rows, d_weight, d_bias = linear_token_logps_reference_backward(coefficients, head)
    d_hidden = torch.zeros_like(call.hidden).index_copy(0, rows, at_rows)
    return Result(loss, d_hidden, d_weight, d_bias, metrics)


def logps_and_entropy(call: LinearCall) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies [N], 0 where masked."""
    rows, n_rows = _scored(call), len(call.hidden)
    of_rows = linear_token_logps_reference(
        *(call.hidden[rows], call.weight, call.bias, call.targets[rows]),
        *(call.temperature, call.softcap),
    )
    logps, entropy = (x.new_zeros(n_rows).index_copy(0, rows, x) for x in of_rows)
    return logps, entropy


def _scored(call: LinearCall) -> Tensor:
    if call.policy.mask is None:
        return torch.arange(len(call.hidden), device=call.policy.offsets.device)
    return call.policy.mask.nonzero().flatten()
