"""Numbers of any depth as 8-bit grey."""

from __future__ import annotations

import numpy as np


def to_8_bits(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map values to uint8 of the same shape.

    `low` and less become 0, `high` and more 255, linear and rounded between. An
    empty range gives zeros.
    """
    if high <= low:
        return np.zeros(values.shape, dtype=np.uint8)
    scaled = (values.astype(np.float64) - low) * (255.0 / (high - low))
    return (np.clip(scaled, 0.0, 255.0) + 0.5).astype(np.uint8)
