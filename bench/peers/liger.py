"""Liger 0.8.5: the chunked GRPO loss, the fused scaled cross entropy, the Triton GRPO loss."""

from __future__ import annotations

from typing import Any

import torch
from liger_kernel.chunked_loss.grpo_loss import (
    LigerFusedLinearGRPOFunction,
    LigerFusedLinearGRPOLoss,
)
from torch import Tensor

from bench.peers import EPSILON, clip_loss


def chunked(
    hidden: Tensor, weight: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    module = LigerFusedLinearGRPOLoss(
        beta=0.0,
        # Only the loss behind the log-probabilities is compiled; nothing to gain on a CPU.
        compiled=hidden.is_cuda,
        use_ref_model=False,
        # All sequences at once: tiles bound the memory anyway, and each chunk costs a [V, H].
        chunk_size=len(hidden),
        epsilon_low=EPSILON,
        epsilon_high=EPSILON,
        loss_type="grpo",
    )
    value, _ = module(hidden, weight, targets, mask.int(), advantages, old_per_token_logps=old)
    return value


def scaled_ce(
    hidden: Tensor, weight: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    labels = targets.masked_fill(~mask, -100).flatten()
    logps = states(hidden.flatten(0, 1), weight, labels)
    return clip_loss(logps.view(targets.shape), advantages, old, mask)


def states(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    from liger_kernel.ops import LigerFusedLinearScaledCrossEntropyFunction

    return -LigerFusedLinearScaledCrossEntropyFunction.apply(hidden, weight, targets)


def entropies(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    from liger_kernel.ops import LigerFusedLinearScaledCrossEntropyFunction

    losses, entropy = LigerFusedLinearScaledCrossEntropyFunction.apply(
        hidden, weight, targets, return_entropy=True
    )
    return -losses, entropy


def triton_loss(
    values: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    from liger_kernel.transformers.grpo_loss import triton_grpo_loss

    # Liger expects logits to be one position longer than what they predict.
    value, _ = triton_grpo_loss(
        values,
        old[:, :-1].contiguous(),
        None,
        targets[:, :-1].contiguous(),
        advantages,
        completion_mask=mask[:, :-1].int().contiguous(),
        temperature=1.0,
        beta=0.0,
        eps_low=EPSILON,
        eps_high=EPSILON,
        inplace=True,
        loss_type="grpo",
        reduce=True,
    )
    return value


def loss(
    logps: Tensor,
    old: Tensor,
    ref: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    level: str,
    eps_low: float,
    eps_high: float,
    beta: float,
) -> Tensor:
    keep: Any = mask.to(logps.dtype)
    value, _ = LigerFusedLinearGRPOFunction.ppo_loss_fn(
        logps,
        keep,
        advantages,
        keep,
        ref_per_token_logps=ref,
        old_per_token_logps=old,
        epsilon_low=eps_low,
        epsilon_high=eps_high,
        beta=beta,
        loss_type="grpo",
        importance_sampling_level=level,
    )
    assert isinstance(value, torch.Tensor)
    return value


def mean(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    value = liger_fused_linear_cross_entropy(hidden, weight, targets)
    assert isinstance(value, torch.Tensor)
    return value
