"""Launches to compile ahead of time: a step of OraPO, with the variants of the arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.preference_loss.triton_preference_loss import launch
from tests.rrgkern.aot.harness import Case


def step(
    dtype: torch.dtype = torch.float32,
    *,
    masked: bool = False,
    length_normalized: bool = True,
    sequences: int = 36,
    tokens: int = 5400,
    tau: float = 0.1,
) -> None:
    def empty(size: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(size, dtype=dtype, device="meta")

    launch(
        empty(tokens, dtype),
        empty(tokens, dtype),
        empty(sequences + 1, torch.int64),
        empty(sequences, torch.int64),
        empty(sequences, torch.int64),
        empty(sequences, dtype),
        empty(tokens, torch.bool) if masked else None,
        tau,
        length_normalized,
    )


# Not streaming: a sequence may begin at any token, so no access can be wide.
CASES = {
    "step": Case(step, streaming=False, kernels=3),
    "step, masked": Case(lambda: step(masked=True), streaming=False, kernels=3),
    "step, sums": Case(lambda: step(length_normalized=False), streaming=False, kernels=3),
    "step, fp64": Case(lambda: step(torch.float64), streaming=False, kernels=3),
}
