"""The op behind `group_advantages`; rewards carry no gradient, so it has no backward."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.advantages import csrc_launch
from rrgkern.advantages.reference import dtype_of_advantages, group_advantages_reference
from rrgkern.dispatch import direct, register_csrc, register_triton


@torch.library.custom_op("rrgkern::group_advantages", mutates_args=())
def group_advantages_op(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute advantages [S], valid members [B] int64, whether their rewards differ [B] bool."""
    return group_advantages_reference(rewards, group_offsets, valid, std, eps)


@group_advantages_op.register_fake
def _fake(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    n_groups = group_offsets.numel() - 1
    return (
        torch.empty_like(rewards, dtype=dtype_of_advantages(rewards)),
        rewards.new_empty(n_groups, dtype=torch.int64),
        rewards.new_empty(n_groups, dtype=torch.bool),
    )


register_triton(group_advantages_op, "rrgkern.advantages.triton_advantages", "launch")
register_csrc(group_advantages_op, csrc_launch.launch, ("cpu",), "advantages")


def as_passed(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The op's results by one call of csrc, which checks the arguments too.

    None where the op must serve, or where an argument is wrong or has to be converted first.
    """
    if direct(group_advantages_op, rewards, group_offsets, valid) is group_advantages_op:
        return None
    return csrc_launch.as_passed(rewards, group_offsets, valid, std, eps)
