"""Checks on the values of ragged entities, for this room and edit_plan."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import values_may_be_read

# A row this far from length 1 is still a unit row: bf16 rounds a length to 1 ± 0.004.
UNIT_TOLERANCE = 0.01


def check_range(name: str, values: Tensor, low: int, high: int | Tensor) -> None:
    """Raise ValueError unless low <= value <= high everywhere; on a GPU, a device assertion."""
    fine = (values >= low) & (values <= high)
    if not values_may_be_read(values):
        torch._assert_async(fine.all(), f"{name} is out of range")
    elif not fine.all():
        row = int((~fine).nonzero()[0])
        top = int(high[row]) if isinstance(high, Tensor) else high
        raise ValueError(f"{name} is {int(values[row])} at row {row}, wanted {low} to {top}")


def check_unit_rows(name: str, embedding: Tensor, used: Tensor | None = None) -> None:
    """Raise ValueError unless each row (of those `used`) is of length 1 ± 0.01; NaN is not.

    On a GPU it is a device assertion, or this error under RRGKERN_CHECK=1.
    """
    length = torch.linalg.vector_norm(embedding, dim=-1)
    fine = (length - 1).abs() <= UNIT_TOLERANCE
    if used is not None:
        fine |= ~used
    if not values_may_be_read(embedding):
        torch._assert_async(fine.all(), f"{name} holds a row that is no unit vector")
    elif not fine.all():
        row = int((~fine).nonzero()[0])
        seen = f"of length {length[row]:.4g}" if length[row].isfinite() else "NaN or infinite"
        raise ValueError(
            f"{name} row {row} is {seen}, wanted a unit vector: divide each row by its length, "
            "and embed no empty text"
        )


def check_weights(name: str, weight: Tensor) -> None:
    """Raise ValueError unless every weight is finite and not negative; on a GPU, an assertion."""
    fine = weight.isfinite() & (weight >= 0)
    if not values_may_be_read(weight):
        torch._assert_async(fine.all(), f"{name} holds a weight that is negative or not finite")
    elif not fine.all():
        row, column = (~fine).nonzero()[0].tolist()
        raise ValueError(
            f"{name} is {float(weight[row, column])} at [{row}, {column}], wanted a finite weight "
            "of at least 0"
        )
