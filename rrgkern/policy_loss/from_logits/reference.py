"""The definition: log-probabilities of `token_logps`, then the policy loss, then back."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps.reference import token_logps_reference, token_logps_reference_backward
from rrgkern.policy_loss.reference import policy_loss_reference
from rrgkern.policy_loss.spec import PolicyLoss


def is_token_level(spec: PolicyLoss, sampler: Tensor | None) -> bool:
    """Whether the gradient of a token needs nothing of its sequence's other tokens."""
    by_sequence = sampler is not None and spec.sampler_level == "sequence"
    return spec.ratio_level == "token" and spec.surrogate != "vespo" and not by_sequence


def grpo_loss_reference(
    logits: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    temperature: float,
    entropy: bool,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, its gradient and its metrics.

    Args:
        logits: [N, V]. The others as in `policy_loss_from_logits`; `spec` is
            `PolicyLoss.encode()`, and `advantage_per_token`, `scale_per_token` say whether those
            two are [N], not [S].

    Returns:
        loss 0-d; gradient [N, V] of the logits, in their dtype, exactly 0 in rows that `mask`
        leaves out; active [N] bool, the rows that have one; metrics as the policy loss returns
        them. fp32, or fp64 for fp64 logits.
    """
    if mask is not None:
        logits, targets = torch.where(mask[:, None], logits, 0), torch.where(mask, targets, 0)
    logps, entropies = token_logps_reference(logits, targets, temperature)
    loss, coef, coef_entropy, metrics = policy_loss_reference(
        logps,
        advantages,
        offsets,
        scale,
        old,
        ref,
        sampler,
        weight,
        entropies if entropy else None,
        on_policy,
        mask,
        advantage_per_token,
        scale_per_token,
        spec,
    )
    bonus = coef_entropy if coef_entropy.numel() else None
    gradient = token_logps_reference_backward(coef, bonus, logits, targets, temperature)
    return loss, gradient, is_active(coef, bonus), metrics


def is_active(coef: Tensor, coef_entropy: Tensor | None) -> Tensor:
    """[N] bool, the rows whose gradient is not 0."""
    return coef != 0 if coef_entropy is None else (coef != 0) | (coef_entropy != 0)
