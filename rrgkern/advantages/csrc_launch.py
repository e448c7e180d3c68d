"""Serve CPUs with csrc/advantages: the members of each group in order, in fp64."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.advantages.reference import dtype_of_advantages

Outputs = tuple[Tensor, Tensor, Tensor]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# In the order of `Deviation` in C++.
STDS = ("none", "population", "sample")


def launch(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> Outputs:
    """Serve `rrgkern::group_advantages`; arguments and results are those of the reference.

    Raises:
        ValueError: tensors that do not fit together, which the checks of the door refuse.
    """
    outputs = _outputs(rewards, group_offsets, valid, std, eps, finite=False)
    if outputs is None:
        raise ValueError(
            "group_offsets or sizes lead out of the rewards; group_advantages says which argument"
        )
    return outputs


def as_passed(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> Outputs | None:
    """The same from what a caller passed; None where it is not ready.

    Dtypes, lengths, gaps, offsets and rewards are checked in C++, which says only yes or no.
    """
    if rewards.dtype not in DTYPES or not group_offsets.numel():
        return None
    return _outputs(rewards, group_offsets, valid, std, eps, finite=True)


def _outputs(
    rewards: Tensor,
    group_offsets: Tensor,
    valid: Tensor | None,
    std: str,
    eps: float,
    finite: bool,
) -> Outputs | None:
    groups = group_offsets.numel() - 1
    advantages = torch.empty_like(rewards, dtype=dtype_of_advantages(rewards))
    members = rewards.new_empty(groups, dtype=torch.int64)
    informative = rewards.new_empty(groups, dtype=torch.bool)
    ready = csrc.load().group_advantages_cpu(
        *(rewards, group_offsets, valid, STDS.index(std), eps, finite),
        *(advantages, members, informative, torch.get_num_threads()),
    )
    return (advantages, members, informative) if ready else None
