"""Numbers of any depth as 8-bit grey."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

AT_ONCE = 1 << 20
"""Values that are float64 at once."""


def to_8_bits(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map values to uint8 of the same shape.

    `low` and less become 0, `high` and more 255, linear and rounded between. An
    empty range gives zeros.
    """
    if high <= low:
        return np.zeros(values.shape, dtype=np.uint8)
    shown = np.empty(values.shape, dtype=np.uint8)
    for rows in row_blocks(values):
        scaled = (values[rows].astype(np.float64) - low) * (255.0 / (high - low))
        shown[rows] = (np.clip(scaled, 0.0, 255.0) + 0.5).astype(np.uint8)
    return shown


def row_blocks(values: np.ndarray) -> Iterator[slice]:
    """Yield slices of the first dimension that hold about AT_ONCE values each."""
    step = max(1, AT_ONCE * len(values) // max(1, values.size))
    yield from (slice(begin, begin + step) for begin in range(0, len(values), step))
