"""Group-relative advantages in plain PyTorch, in fp64."""

from __future__ import annotations

import torch
from torch import Tensor


def dtype_of_advantages(rewards: Tensor) -> torch.dtype:
    """Return the dtype of the advantages of rewards: theirs, at least fp32."""
    return torch.promote_types(rewards.dtype, torch.float32)


def group_advantages_reference(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute advantages and, for each group, its valid members and whether their rewards differ.

    Args:
        rewards: [S] floating point.
        group_offsets: [B+1] int64.
        valid: [S] bool, or None when every sequence is a member.
        std: "none", "population" (MRG-R1 eq. 2) or "sample" (TRL).
        eps: added to the variance ("population") or to its root ("sample").

    Returns:
        advantages [S], fp64 for fp64 rewards, else fp32; valid members [B] int64; [B] bool, True
        where at least two valid members have different rewards.
    """
    n_groups = group_offsets.numel() - 1
    lengths = group_offsets.diff()
    group = torch.repeat_interleave(
        torch.arange(n_groups, device=rewards.device), lengths, output_size=rewards.numel()
    )
    reward = rewards.double()
    keep = torch.ones_like(reward, dtype=torch.bool) if valid is None else valid

    def total(values: Tensor) -> Tensor:
        return values.new_zeros(n_groups).index_add(0, group, values)

    count = total(keep.long())
    mean = total(torch.where(keep, reward, 0.0)) / count.clamp(min=1)
    centred = torch.where(keep, reward - mean[group], 0.0)
    squares = total(centred.square())

    # Equality is asked of the rewards themselves: the mean of equal numbers can be off by one ulp.
    lowest = reward.new_full((n_groups,), torch.inf).scatter_reduce(
        0, group, torch.where(keep, reward, torch.inf), "amin"
    )
    highest = reward.new_full((n_groups,), -torch.inf).scatter_reduce(
        0, group, torch.where(keep, reward, -torch.inf), "amax"
    )
    # `not equal` rather than `above`, so that a NaN reward ends in a NaN advantage, never in 0.
    informative = (count >= 2) & (lowest != highest)

    if std == "population":
        divisor = (squares / count.clamp(min=1) + eps).sqrt()
    elif std == "sample":
        divisor = (squares / (count - 1).clamp(min=1)).sqrt() + eps
    else:
        divisor = torch.ones_like(squares)
    advantages = torch.where(informative[group] & keep, centred / divisor[group], 0.0)
    return advantages.to(dtype_of_advantages(rewards)), count, informative
