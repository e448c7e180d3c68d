"""Targets must name a column."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import values_may_be_read


def check_targets(targets: Tensor, vocabulary: int, keep: Tensor | None = None) -> None:
    """Raise IndexError when a target is outside [0, vocabulary) in a row that `keep` [N] keeps.

    On CUDA the check is a device assertion, so that nothing waits for the GPU;
    RRGKERN_CHECK=1 makes it wait and raise here, with the row that is wrong.
    """
    wrong = (targets < 0) | (targets >= vocabulary)
    if keep is not None:
        wrong &= keep
    if values_may_be_read(targets):
        rows = wrong.nonzero().flatten()
        if len(rows):
            row = int(rows[0])
            raise IndexError(
                f"targets[{row}] is {int(targets[row])} ({len(rows)} such rows), wanted 0 to "
                f"{vocabulary - 1}: drop ignored tokens (-100) before the call"
            )
    else:
        torch._assert_async(
            ~wrong.any(), "a target is outside the vocabulary; RRGKERN_CHECK=1 names its row"
        )
