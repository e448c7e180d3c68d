"""Launches to compile ahead of time; a group is a few numbers, so nothing streams."""

from __future__ import annotations

import torch

from rrgkern.advantages.triton_advantages import launch
from tests.rrgkern.aot.harness import Case

GROUPS, MEMBERS = 32, 10


def run(std: str, with_valid: bool) -> None:
    sequences = GROUPS * MEMBERS
    rewards = torch.empty(sequences, device="meta")
    offsets = torch.empty(GROUPS + 1, dtype=torch.int64, device="meta")
    valid = torch.empty(sequences, dtype=torch.bool, device="meta") if with_valid else None
    launch(rewards, offsets, valid, std, 1e-6)


CASES = {
    f"{std}{', valid' if given else ''}": Case(
        lambda std=std, given=given: run(std, given), streaming=False
    )
    for std, given in (("none", False), ("none", True), ("population", True), ("sample", True))
}
