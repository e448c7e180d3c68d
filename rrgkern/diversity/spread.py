"""Spread of the rewards of a group, by which a subset of studies is judged."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.advantages.api import check_groups
from rrgkern.checks import check_tensors


class RewardSpread(NamedTuple):
    """DEER's table 7, each a 0-d fp64 tensor over the groups with a valid member.

    Attributes:
        zero_variance: share of the groups that teach nothing: one valid member, or equal rewards.
        unique_rewards: mean number of different rewards in a group.
        mean_std: mean of the groups' population standard deviations.
    """

    zero_variance: Tensor
    unique_rewards: Tensor
    mean_std: Tensor


def reward_spread(
    rewards: Tensor, group_offsets: Tensor, *, valid: Tensor | None = None
) -> RewardSpread:
    """Measure zero-variance share, unique rewards and mean standard deviation (DEER, table 7).

    The paper prints "Avg. Std" without saying which; it is the population's here, as in eq. 3.

    Args:
        rewards: [S] floating point.
        group_offsets: [B+1] int64, where groups begin in `rewards`.
        valid: [S] bool, False for a sequence that is not a member. None: all are.

    Returns:
        NaN everywhere when no group has a valid member.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: a shape is wrong, offsets do not divide the rewards, or a valid reward is not
            finite; values on a GPU are read under RRGKERN_CHECK=1 only.
    """
    check_tensors(rewards=rewards, group_offsets=group_offsets, optional={"valid": valid})
    check_groups(rewards, group_offsets, valid)
    sizes = group_offsets.diff()
    if not len(sizes):
        return RewardSpread(*rewards.new_full((3,), torch.nan, dtype=torch.float64))
    group = torch.arange(len(sizes), device=rewards.device).repeat_interleave(
        sizes, output_size=len(rewards)
    )
    values = rewards.detach().double()
    if valid is not None:
        group, values = group[valid], values[valid]
    count = torch.bincount(group, minlength=len(sizes))
    counted = count > 0

    order = values.argsort(stable=True)
    order = order[group[order].argsort(stable=True)]
    group, values = group[order], values[order]
    new = torch.ones_like(group, dtype=torch.bool)
    new[1:] = (group[1:] != group[:-1]) | (values[1:] != values[:-1])
    unique = torch.bincount(group[new], minlength=len(sizes))

    mean = torch.segment_reduce(values, "mean", lengths=count)
    square = torch.segment_reduce((values - mean[group]) ** 2, "mean", lengths=count)
    unique = unique[counted].double()
    return RewardSpread((unique == 1).double().mean(), unique.mean(), square[counted].sqrt().mean())
