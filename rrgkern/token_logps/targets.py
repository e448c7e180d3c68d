"""Targets must name a column: the check that costs a synchronisation on a GPU."""

from __future__ import annotations

import os

import torch
from torch import Tensor


def check_targets(targets: Tensor, vocabulary: int) -> None:
    """Raise IndexError when a target is outside [0, vocabulary).

    On CUDA the check is a device assertion, so that nothing waits for the GPU;
    RRGKERN_CHECK=1 makes it wait and raise here, with the row that is wrong.
    """
    wrong = (targets < 0) | (targets >= vocabulary)
    if targets.is_cuda and os.environ.get("RRGKERN_CHECK") != "1":
        torch._assert_async(
            ~wrong.any(), "a target is outside the vocabulary; RRGKERN_CHECK=1 names its row"
        )
        return
    rows = wrong.nonzero().flatten()
    if len(rows):
        row = int(rows[0])
        raise IndexError(
            f"targets[{row}] is {int(targets[row])} ({len(rows)} such rows), wanted 0 to "
            f"{vocabulary - 1}: drop ignored tokens (-100) before the call"
        )
