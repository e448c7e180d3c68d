"""Launches to compile ahead of time: a step's groups, each deviation, members left out."""

from __future__ import annotations

import torch

from rrgkern.advantages.triton_advantages import launch
from tests.rrgkern.aot.harness import Case, per_row

GROUPS, MEMBERS = 64, 10


def groups(
    std: str = "none",
    dtype: torch.dtype = torch.float32,
    *,
    some_left_out: bool = False,
    n_groups: int = GROUPS,
    members: int = MEMBERS,
    eps: float = 1e-4,
) -> None:
    sequences = n_groups * members
    valid = per_row(sequences, torch.bool) if some_left_out else None
    launch(per_row(sequences, dtype), per_row(n_groups + 1, torch.int64), valid, std, eps)


# Not streaming: a lane walks through a group, which may begin at any sequence.
CASES = {
    "none": Case(groups, streaming=False),
    "population, some left out": Case(
        lambda: groups("population", some_left_out=True), streaming=False
    ),
    "sample, bf16": Case(lambda: groups("sample", torch.bfloat16), streaming=False),
    "sample, some left out, fp64": Case(
        lambda: groups("sample", torch.float64, some_left_out=True), streaming=False
    ),
}
