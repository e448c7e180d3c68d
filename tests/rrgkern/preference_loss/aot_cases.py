"""Launches to compile ahead of time: a step of OraPO, with the variants of the arguments."""

from __future__ import annotations

import torch

from rrgkern.preference_loss.triton_preference_loss import launch
from tests.rrgkern.aot.harness import Case, per_row


def step(
    dtype: torch.dtype = torch.float32,
    *,
    masked: bool = False,
    length_normalized: bool = True,
    sequences: int = 36,
    tokens: int = 5400,
    tau: float = 0.1,
) -> None:
    launch(
        per_row(tokens, dtype),
        per_row(tokens, dtype),
        per_row(sequences + 1, torch.int64),
        per_row(sequences, torch.int64),
        per_row(sequences, torch.int64),
        per_row(sequences, dtype),
        per_row(tokens, torch.bool) if masked else None,
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
