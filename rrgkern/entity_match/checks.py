"""Checks on the values of ragged entity batches. Each reads the device, so see `check_values`."""

from __future__ import annotations

import os

import torch
from torch import Tensor

# A row this far from length 1 is still a unit row: bf16 rounds a length to 1 +- 0.004.
UNIT_TOLERANCE = 0.01


def check_values(tensor: Tensor) -> bool:
    """Whether values may be read: always on the CPU, elsewhere where RRGKERN_CHECK=1 asks for it.

    On a GPU reading a value makes the host wait for the device.
    """
    return tensor.device.type == "cpu" or os.environ.get("RRGKERN_CHECK", "0") == "1"


def check_offsets(name: str, offsets: Tensor, total: int) -> None:
    """Raise ValueError unless offsets rise from 0 to `total`."""
    if int(offsets[0]) != 0 or int(offsets[-1]) != total:
        raise ValueError(
            f"{name} runs from {int(offsets[0])} to {int(offsets[-1])}, wanted from 0 to {total}, "
            "the number of rows it cuts"
        )
    falls = (offsets[1:] < offsets[:-1]).nonzero()
    if len(falls):
        raise ValueError(f"{name} falls at report {int(falls[0])}, wanted offsets that never fall")


def check_range(name: str, values: Tensor, low: int, high: int) -> None:
    """Raise ValueError unless every value is in [low, high]."""
    bad = ((values < low) | (values > high)).nonzero()
    if len(bad):
        row = int(bad[0])
        raise ValueError(f"{name} is {int(values[row])} at row {row}, wanted {low} to {high}")


def check_unit_rows(name: str, embedding: Tensor, used: Tensor | None = None) -> None:
    """Raise ValueError unless each row (of those `used`) is finite and of length 1 +- 0.01."""
    length = torch.linalg.vector_norm(embedding.double(), dim=-1)
    wrong = ~((length - 1).abs() <= UNIT_TOLERANCE)
    if used is not None:
        wrong &= used
    rows = wrong.nonzero()
    if len(rows):
        row = int(rows[0])
        seen = "NaN or infinite" if not length[row].isfinite() else f"of length {length[row]:.4g}"
        raise ValueError(
            f"{name} row {row} is {seen}, wanted a unit vector: divide each row by its length, "
            "and embed no empty text"
        )
