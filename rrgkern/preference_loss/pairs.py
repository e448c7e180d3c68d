"""Pair each oracle with the other sequences of its group."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import (
    check_begins,
    check_constants,
    check_device,
    check_offsets,
    check_tensors,
    values_may_be_read,
)
from rrgkern.preference_loss.inputs import PreferencePairs
from rrgkern.segments import sequence_of_token


def oracle_pairs(
    is_oracle: Tensor, group_offsets: Tensor, *, prompt_weight: Tensor | None = None
) -> PreferencePairs:
    """Pair each group's oracle with every other sequence of its group (OraPO eq. 12).

    The K pairs of a group share its weight, w_b / K each, so that the loss over them is w_b times
    the mean of the group. P = S: pair i has sequence i as its negative, and weight 0 where i is
    the oracle itself or its group has none. Nothing waits for the device.

    Args:
        is_oracle: [S] bool, at most one True in a group.
        group_offsets: [B+1] int64, where groups begin among the sequences.
        prompt_weight: [B] floating point, w_b. None: 1 / B, the mean over prompts.

    Raises:
        NotImplementedError: prompt_weight requires a gradient.
        TypeError: a dtype is wrong.
        ValueError: a shape or device is wrong; on CPU, or with RRGKERN_CHECK=1, also offsets that
            do not divide the sequences, or a group with two oracles.
    """
    check_tensors(
        is_oracle=is_oracle, group_offsets=group_offsets, optional={"prompt_weight": prompt_weight}
    )
    check_constants(prompt_weight=prompt_weight)
    n_sequences, n_groups = is_oracle.numel(), group_offsets.numel() - 1
    _check(is_oracle, group_offsets, prompt_weight)
    group = sequence_of_token(group_offsets, n_sequences)
    own = torch.arange(n_sequences, device=is_oracle.device)

    oracle = own.new_full((n_groups,), -1)
    oracle = oracle.scatter_reduce(0, group, torch.where(is_oracle, own, -1), "amax")[group]
    weight = (
        torch.full_like(group_offsets[1:], 1.0 / max(n_groups, 1), dtype=torch.float32)
        if prompt_weight is None
        else prompt_weight.detach()
    )
    negatives = (group_offsets.diff() - 1).clamp(min=1)
    paired = ~is_oracle & (oracle >= 0)
    return PreferencePairs(
        positive=torch.where(paired, oracle, own),
        negative=own,
        weight=torch.where(paired, (weight / negatives)[group], 0.0),
    )


def _check(is_oracle: Tensor, group_offsets: Tensor, prompt_weight: Tensor | None) -> None:
    if is_oracle.ndim != 1:
        raise ValueError(f"is_oracle has shape {tuple(is_oracle.shape)}; wanted [S]")
    if is_oracle.dtype != torch.bool:
        raise TypeError(f"is_oracle is {is_oracle.dtype}; wanted torch.bool")
    check_begins("group_offsets", group_offsets, "B+1", "is_oracle", is_oracle)
    n_groups = group_offsets.numel() - 1
    if prompt_weight is not None:
        if prompt_weight.shape != (n_groups,):
            raise ValueError(
                f"prompt_weight has shape {tuple(prompt_weight.shape)}; "
                f"wanted [B] = ({n_groups},), one per group"
            )
        if not prompt_weight.is_floating_point():
            raise TypeError(f"prompt_weight is {prompt_weight.dtype}; wanted floating point")
        check_device("prompt_weight", prompt_weight, "is_oracle", is_oracle)
    check_offsets("group_offsets", group_offsets, is_oracle.numel(), "sequences")
    if values_may_be_read(is_oracle):
        group = sequence_of_token(group_offsets, is_oracle.numel())
        oracles = torch.bincount(group[is_oracle], minlength=n_groups)
        if bool((oracles > 1).any()):
            at = int((oracles > 1).nonzero()[0])
            raise ValueError(
                f"group {at} has {int(oracles[at])} oracles; wanted one, or none to leave it out"
            )
