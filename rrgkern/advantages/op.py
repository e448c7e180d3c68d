"""The op behind `group_advantages`; rewards carry no gradient, so it has no backward.

csrc/advantages serves CPUs: the members of each group in order, in fp64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.advantages.reference import dtype_of_advantages, group_advantages_reference
from rrgkern.dispatch import direct, register_csrc, register_triton

Outputs = tuple[Tensor, Tensor, Tensor]
# What csrc takes.
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# In the order of `Deviation` in C++.
STDS = ("none", "population", "sample")


@torch.library.custom_op("rrgkern::group_advantages", mutates_args=())
def group_advantages_op(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute advantages [S], valid members [B] int64, whether their rewards differ [B] bool."""
    return group_advantages_reference(rewards, group_offsets, valid, std, eps)


@group_advantages_op.register_fake
def _fresh(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> Outputs:
    n_groups = group_offsets.numel() - 1
    return (
        torch.empty_like(rewards, dtype=dtype_of_advantages(rewards)),
        rewards.new_empty(n_groups, dtype=torch.int64),
        rewards.new_empty(n_groups, dtype=torch.bool),
    )


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
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float, finite: bool
) -> Outputs | None:
    outputs: Outputs = _fresh(rewards, group_offsets, valid, std, eps)
    ready = csrc.load().group_advantages_cpu(
        *(rewards, group_offsets, valid, STDS.index(std), eps, finite),
        *(*outputs, torch.get_num_threads()),
    )
    return outputs if ready else None


register_triton(group_advantages_op, "rrgkern.advantages.triton_advantages", "launch")
register_csrc(group_advantages_op, launch, ("cpu",), "advantages")


def served_by_csrc(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> Outputs | None:
    """The op's results by one call of csrc, which checks the arguments too.

    None where the op must serve, or where an argument is wrong or has to be converted first.
    """
    if direct(group_advantages_op, rewards, group_offsets, valid) is group_advantages_op:
        return None
    return as_passed(rewards, group_offsets, valid, std, eps)
