"""Keep measures by unit, so that runs are compared pairwise.

Every measure is a mean over M parts of a ratio of sums over U units (studies, or steps): micro-F1
is Σ 2·TP / Σ (2·TP + FP + FN) over studies, macro-F1 the mean of that over labels, a plain mean
Σ x / Σ 1. So one resampling of the units serves them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rrgclinical.labels import to_binary


@dataclass(frozen=True)
class Ratios:
    """`top` and `bottom` are float64 `[U, M]`; 0/0 counts as 0, as in scikit-learn."""

    top: np.ndarray
    bottom: np.ndarray

    def __post_init__(self) -> None:
        if self.top.ndim != 2 or self.top.shape != self.bottom.shape or not self.top.size:
            raise ValueError(
                f"ratios of {list(self.top.shape)} over {list(self.bottom.shape)}; "
                "wanted the same [units, parts], neither of them 0"
            )

    @property
    def units(self) -> int:
        return len(self.top)

    def value(self, weights: np.ndarray | None = None) -> np.ndarray:
        """float64 `[B]` under unit weights `[B, U]`; without weights `[1]`."""
        weights = np.ones((1, self.units)) if weights is None else weights
        top, bottom = weights @ self.top, weights @ self.bottom
        return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0).mean(1)


def mean_of(values: Sequence[float] | np.ndarray, counted: np.ndarray | None = None) -> Ratios:
    """The mean of one value a unit; `counted` 0 or 1 leaves units out."""
    top = np.asarray(values, dtype=np.float64)
    bottom = np.ones_like(top) if counted is None else np.asarray(counted, dtype=np.float64)
    return Ratios((top * bottom)[:, None], bottom[:, None])


def label_measures(predicted: np.ndarray, truth: np.ndarray) -> dict[str, Ratios]:
    """Micro- and macro-F1 of class ids `[R, 14]`; positive is positive or uncertain."""
    p, t = (to_binary(labels).astype(np.float64) for labels in (predicted, truth))
    hit = p * t
    return {
        "micro_f1": Ratios(2 * hit.sum(1)[:, None], (p.sum(1) + t.sum(1))[:, None]),
        "macro_f1": Ratios(2 * hit, p + t),
    }
