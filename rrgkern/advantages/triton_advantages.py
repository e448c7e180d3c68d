"""Group-relative advantages: one lane a group, its members in order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.advantages.reference import dtype_of_advantages

# Lanes of a program. Groups are few and small: two warps hide what there is of latency.
GROUPS_PER_PROGRAM = 64

STD_NONE = tl.constexpr(0)
STD_POPULATION = tl.constexpr(1)
STD_SAMPLE = tl.constexpr(2)
STD_CODES = {"none": 0, "population": 1, "sample": 2}

# A number a sequence or group. Slices of a larger batch share one compilation.
ARGUMENT_POINTERS = ("rewards_ptr", "offsets_ptr", "valid_ptr")


@triton.jit
def _load_member(rewards_ptr, valid_ptr, member, inside):
    """Reward in fp64 and membership of one sequence a lane."""
    keep = inside
    if valid_ptr is not None:
        keep = keep & (tl.load(valid_ptr + member, mask=inside, other=0) != 0)
    return tl.load(rewards_ptr + member, mask=keep, other=0.0).to(tl.float64), keep


@triton.jit(do_not_specialize=["n_groups"], do_not_specialize_on_alignment=ARGUMENT_POINTERS)
def group_advantages_kernel(
    rewards_ptr,
    offsets_ptr,
    valid_ptr,
    advantages_ptr,
    count_ptr,
    informative_ptr,
    n_groups,
    eps: tl.float64,
    STD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Three passes over the members of BLOCK groups: mean, deviation, advantages."""
    group = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = group < n_groups
    start = tl.load(offsets_ptr + group, mask=exists, other=0)
    length = tl.load(offsets_ptr + group + 1, mask=exists, other=0) - start
    longest = tl.max(length, axis=0)

    # 1. Sum, count, and whether the rewards differ.
    count = tl.zeros([BLOCK], tl.int64)
    total = tl.zeros([BLOCK], tl.float64)
    first = tl.zeros([BLOCK], tl.float64)
    differs = tl.zeros([BLOCK], tl.int1)
    # `while`, not `range`: Triton 3.6 cannot interpret a range of run-time length on NumPy 2.4.
    i = 0
    while i < longest:
        reward, keep = _load_member(rewards_ptr, valid_ptr, start + i, exists & (i < length))
        first = tl.where(keep & (count == 0), reward, first)
        # True for a NaN too: it must end in a NaN advantage, never in 0.
        differs = differs | (keep & (reward != first))
        total += tl.where(keep, reward, 0.0)
        count += keep.to(tl.int64)
        i += 1

    members = tl.maximum(count, 1).to(tl.float64)
    mean = total / members
    informative = differs & (count >= 2)

    # 2. Standard deviation.
    divisor = tl.full([BLOCK], 1.0, tl.float64)
    if STD != STD_NONE:
        squares = tl.zeros([BLOCK], tl.float64)
        i = 0
        while i < longest:
            reward, keep = _load_member(rewards_ptr, valid_ptr, start + i, exists & (i < length))
            centred = tl.where(keep, reward - mean, 0.0)
            squares += centred * centred
            i += 1
        epsilon = tl.full([BLOCK], eps, tl.float64)
        if STD == STD_POPULATION:
            divisor = tl.sqrt(squares / members + epsilon)
        else:
            divisor = tl.sqrt(squares / tl.maximum(count - 1, 1).to(tl.float64)) + epsilon

    # 3. Advantages.
    i = 0
    while i < longest:
        inside = exists & (i < length)
        reward, keep = _load_member(rewards_ptr, valid_ptr, start + i, inside)
        advantage = tl.where(informative & keep, (reward - mean) / divisor, 0.0)
        tl.store(advantages_ptr + start + i, advantage, mask=inside)
        i += 1
    tl.store(count_ptr + group, count, mask=exists)
    tl.store(informative_ptr + group, informative, mask=exists)


def launch(
    rewards: Tensor, group_offsets: Tensor, valid: Tensor | None, std: str, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Serve `rrgkern::group_advantages`; arguments are those of the reference."""
    n_groups = group_offsets.numel() - 1
    advantages = torch.empty_like(rewards, dtype=dtype_of_advantages(rewards))
    count = torch.empty(n_groups, dtype=torch.int64, device=rewards.device)
    informative = torch.empty(n_groups, dtype=torch.bool, device=rewards.device)
    if n_groups:
        group_advantages_kernel[(triton.cdiv(n_groups, GROUPS_PER_PROGRAM),)](
            rewards,
            group_offsets,
            valid,
            advantages,
            count,
            informative,
            n_groups,
            eps,
            STD=STD_CODES[std],
            BLOCK=GROUPS_PER_PROGRAM,
            num_warps=2,
            # A fused multiply-add would round differently from the reference.
            enable_fp_fusion=False,
        )
    return advantages, count, informative
