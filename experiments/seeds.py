"""Judge a difference over seeds: a bootstrap of seeds and studies, and Student's interval.

The bootstrap has two levels: seeds are drawn with replacement, and within each the held-out
studies, the same for both sides. With three seeds the outer level is coarse; with one the interval
is over studies alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.measures import Ratios

LEVEL, RESAMPLES = 0.95, 2000
_STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % quantiles of Student's t for 2 to 10 seeds; more take the last, which is wider."""
HOLDS, FAILS, UNDECIDED, NOT_JUDGED = "holds", "fails", "undecided", "not judged"


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its interval, and the difference of each seed."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]


def difference(first: Sequence[Ratios], second: Sequence[Ratios]) -> Estimate:
    """Compute `first` minus `second`, one of each a seed, with its percentile interval.

    Raises ValueError where the two were not measured on the same units.
    """
    observed, draws = [], []
    for seed, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.units != other.units:
            raise ValueError(f"seed {seed}: {one.units} units against {other.units}; wanted equal")
        weights = _weights(seed, one.units)
        observed.append(float((one.value() - other.value())[0]))
        draws.append(one.value(weights) - other.value(weights))
    rng = np.random.default_rng(len(draws))
    # A seed that is drawn twice brings two resamplings of its studies.
    seeds = rng.integers(0, len(draws), size=(RESAMPLES, len(draws)))
    own = rng.integers(0, RESAMPLES, size=seeds.shape)
    means = np.stack(draws)[seeds, own].mean(1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(np.mean(observed)), float(low), float(high), tuple(observed))


@functools.lru_cache(maxsize=8)
def _weights(seed: int, units: int) -> np.ndarray:
    """How often each unit is drawn in each resampling, the same for all that is compared."""
    rng = np.random.default_rng((seed, units))
    return rng.multinomial(units, np.full(units, 1.0 / units), size=RESAMPLES).astype(np.float64)


def over_seeds(differences: Sequence[float]) -> tuple[float, float]:
    """Compute Student's 95 % interval of the mean over seeds; one seed gives no bounds.

    A bootstrap of few seeds hardly leaves the range of their values; this one does.
    """
    count = len(differences)
    if count < 2:
        return -np.inf, np.inf
    quantile = _STUDENT_95[min(count - 1, len(_STUDENT_95)) - 1]
    mean, half = float(np.mean(differences)), quantile * float(np.std(differences, ddof=1))
    return mean - half / count**0.5, mean + half / count**0.5


def judge_above(between: Estimate) -> str:
    """Judge whether `first` is above `second`.

    It fails where the difference is not above zero, and holds where its interval is and every
    single seed too; else it is undecided.
    """
    if between.value <= 0:
        return FAILS
    # Of three seeds one may point the other way, and the interval still leave zero out.
    return HOLDS if min(between.low, *between.seeds) > 0 else UNDECIDED
