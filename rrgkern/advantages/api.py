"""Group-relative advantages: the public functions."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from rrgkern.advantages.op import group_advantages_op, served_by_csrc
from rrgkern.checks import (
    check_begins,
    check_device,
    check_number,
    check_offsets,
    check_tensors,
    values_may_be_read,
)

Std = Literal["none", "population", "sample"]

# MRG-R1 asks for 1e-8 to 1e-6 inside the root; TRL adds 1e-4 to the root.
DEFAULT_EPS: dict[str, float] = {"none": 0.0, "population": 1e-6, "sample": 1e-4}


def group_advantages(
    rewards: Tensor,
    group_offsets: Tensor | None = None,
    *,
    valid: Tensor | None = None,
    std: Std = "none",
    eps: float | None = None,
) -> Tensor:
    """Compute the advantage of each sequence: its reward minus the mean of its group.

    `std` says what divides the difference: "none" nothing (Dr. GRPO, EditGRPO), "population"
    sqrt(mean square deviation + eps) (MRG-R1 eq. 2), "sample" the standard deviation with
    count - 1 below, plus eps (TRL). The mean and the deviation are those of the valid members.

    A group with fewer than two valid members, or whose valid members all have the same reward,
    gets exactly 0, and so does every invalid member. Computed in fp64, rounded once to the
    result's dtype; not differentiable.

    Args:
        rewards: [S] floating point, or [B, G] for groups of equal size, without offsets. Nothing at
            an invalid member is read, NaN included.
        group_offsets: [B+1] int64, where groups begin in `rewards` [S]; a group may be empty.
        valid: bool in the shape of `rewards`, False for a sequence that is not a member (a dropped
            edit). None: all are.
        std: "none", "population" or "sample".
        eps: >= 0; by default 1e-6 for "population" and 1e-4 for "sample".

    Returns:
        The shape of `rewards`, on their device, fp64 for fp64 rewards, else fp32.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: a shape, a device or an option is wrong; on CPU, or with RRGKERN_CHECK=1, also
            a valid reward that is not finite or offsets that do not divide the sequences.
    """
    rows = _rows(rewards, group_offsets, valid)
    if not isinstance(std, str) or std not in DEFAULT_EPS:
        raise ValueError(f"std is {std!r}; choose one of {', '.join(map(repr, DEFAULT_EPS))}")
    if eps is None:
        eps = DEFAULT_EPS[std]
    check_number("eps", eps)
    eps = float(eps)
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}; it must be finite and not negative")
    return _serve(*rows, std, eps)[0].view(rewards.shape)


def zero_variance_share(
    rewards: Tensor, group_offsets: Tensor | None = None, *, valid: Tensor | None = None
) -> Tensor:
    """Compute the share of groups that teach nothing: under two valid members, or equal rewards.

    Groups without a valid member are not counted. Arguments and errors are those of
    `group_advantages`.

    Returns:
        0-d fp32 on the device of `rewards`; NaN when no group has a valid member.
    """
    _, count, informative = _serve(*_rows(rewards, group_offsets, valid), "none", 0.0)
    counted = count > 0
    return (counted & ~informative).sum().float() / counted.sum()


def _rows(
    rewards: Tensor, group_offsets: Tensor | None, valid: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Check that the arguments are tensors, and lay rewards [B, G] out as sequences."""
    if group_offsets is not None:
        check_tensors(rewards=rewards, group_offsets=group_offsets, optional={"valid": valid})
        return rewards, group_offsets, valid
    check_tensors(rewards=rewards, optional={"valid": valid})
    if rewards.ndim != 2:
        raise ValueError(
            f"rewards has shape {tuple(rewards.shape)} and group_offsets is None; wanted [B, G], "
            "or [S] with group_offsets"
        )
    _check_valid(rewards, valid)
    groups, size = rewards.shape
    offsets = size * torch.arange(groups + 1, device=rewards.device)
    return rewards.flatten(), offsets, None if valid is None else valid.flatten()


def _serve(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Check the arguments as passed, and compute advantages, valid members and who differs."""
    served = served_by_csrc(rewards, group_offsets, valid, std, eps)
    if served is not None:
        return served
    check_groups(rewards, group_offsets, valid)
    computed: tuple[Tensor, Tensor, Tensor] = group_advantages_op(
        rewards.detach().contiguous(), group_offsets.contiguous(), _contiguous(valid), std, eps
    )
    return computed


def check_groups(rewards: Tensor, group_offsets: Tensor, valid: Tensor | None) -> None:
    """Raise TypeError or ValueError for rewards [S], offsets or members that do not fit."""
    if rewards.ndim != 1:
        raise ValueError(
            f"rewards has shape {tuple(rewards.shape)}; wanted [S], one per sequence, or [B, G] "
            "without group_offsets"
        )
    if not rewards.is_floating_point():
        raise TypeError(f"rewards is {rewards.dtype}; wanted floating point: pass rewards.float()")
    check_begins("group_offsets", group_offsets, "B+1", "rewards", rewards)
    _check_valid(rewards, valid)
    check_offsets("group_offsets", group_offsets, rewards.numel(), "sequences")
    if values_may_be_read(rewards):
        broken = ~rewards.isfinite() if valid is None else ~rewards.isfinite() & valid
        if bool(broken.any()):
            at = int(broken.nonzero()[0])
            raise ValueError(
                f"the reward of sequence {at} is {float(rewards[at])}; a reward that could not be "
                "computed belongs to a member marked valid=False"
            )


def _check_valid(rewards: Tensor, valid: Tensor | None) -> None:
    if valid is None:
        return
    if valid.shape != rewards.shape:
        raise ValueError(
            f"valid has shape {tuple(valid.shape)} and rewards {tuple(rewards.shape)}; "
            "wanted the same"
        )
    if valid.dtype != torch.bool:
        raise TypeError(f"valid is {valid.dtype}; wanted torch.bool")
    check_device("valid", valid, "rewards", rewards)


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
