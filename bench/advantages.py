"""Group-relative advantages: full groups, and the groups of the domain.

The batch of the domain: in a third of the groups all members have the same reward, and one member
in ten is not valid. Rewards carry no gradient, so there is no backward.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bench.harness import Agree, Bench
from rrgkern import group_advantages
from rrgkern.advantages.api import DEFAULT_EPS
from rrgkern.advantages.reference import group_advantages_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MEMBERS = 10
STD = "population"

bench = Bench("advantages")


@bench.provider("eager")
def eager(rewards: Tensor, group_offsets: Tensor, valid: Tensor | None) -> Tensor:
    return group_advantages_reference(rewards, group_offsets, valid, STD, DEFAULT_EPS[STD])[0]


@bench.provider("rrgkern")
def ours(rewards: Tensor, group_offsets: Tensor, valid: Tensor | None) -> Tensor:
    return group_advantages(rewards, group_offsets, valid=valid, std=STD)


@pytest.mark.parametrize("groups", [8, 512])
@pytest.mark.parametrize("batch", ["dense", "domain"])
def test_group_advantages(benchmark, batch, groups):
    sequences = groups * MEMBERS
    dropped = batch == "domain"

    def make_inputs(seed: int) -> tuple[Tensor, Tensor, Tensor | None]:
        generator = torch.Generator().manual_seed(seed)
        rewards = torch.rand(groups, MEMBERS, generator=generator)
        valid = None
        if dropped:
            rewards[: groups // 3] = rewards[: groups // 3, :1]
            valid = torch.arange(sequences) % 10 != 9
        return (
            rewards.flatten().to(DEVICE),
            torch.arange(0, sequences + 1, MEMBERS).to(DEVICE),
            None if valid is None else valid.to(DEVICE),
        )

    bench.compare(
        benchmark,
        make_inputs,
        shape={"groups": groups, "members": MEMBERS, "flat_groups": groups // 3 if dropped else 0},
        dtype=torch.float32,
        case=f"{STD}, {batch}",
        # A reward read and an advantage written, validity read where there is any; of a group its
        # offset, its count and whether it is informative.
        bytes_moved=sequences * (4 + 4 + dropped) + groups * (8 + 8 + 1),
        agree=Agree(1, 1e-6),
    )
