"""Judge whether a claim holds: differences with their intervals, and a verdict.

The interval is a percentile bootstrap of two levels: seeds are drawn with replacement, and within
each the held-out studies, the same for both sides. With three seeds the outer level is coarse; with
one the interval is over studies alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.replicate.measures import Ratios

LEVEL, RESAMPLES = 0.9, 2000
_STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % quantiles of Student's t for 2 to 10 seeds; more take the last, which is wider."""
MARGIN = 0.02
"""Two points: how near "about the same" is."""
HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
REPRODUCES = "reproduces here"
NOT_REPRODUCED = "does not reproduce here"
OPEN = "undecided here"
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its interval, and the value of each seed."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]


def estimate(
    first: Sequence[Ratios],
    second: Sequence[Ratios] = (),
    factor: float = 1,
    level: float = LEVEL,
) -> Estimate:
    """`first` minus `factor` times `second`, one of each a seed; `first` alone without `second`.

    Raises ValueError where the two were not measured on the same units.
    """
    pairs = list(zip(first, second, strict=True)) if second else [(one, None) for one in first]
    observed, draws = [], []
    for seed, (one, other) in enumerate(pairs):
        if other is not None and one.units != other.units:
            raise ValueError(f"seed {seed}: {one.units} units against {other.units}; wanted equal")
        weights = _weights(seed, one.units)
        observed.append(_difference(one, other, factor, None)[0])
        draws.append(_difference(one, other, factor, weights))
    rng = np.random.default_rng(len(pairs))
    # A seed that is drawn twice brings two resamplings of its studies.
    seeds = rng.integers(0, len(pairs), size=(RESAMPLES, len(pairs)))
    own = rng.integers(0, RESAMPLES, size=seeds.shape)
    means = np.stack(draws)[seeds, own].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(np.mean(observed)), float(low), float(high), tuple(map(float, observed)))


def over_seeds(found: Sequence[float]) -> tuple[float, float]:
    """Compute Student's 95 % interval of the mean over seeds; one seed gives no bounds.

    A bootstrap of few seeds hardly leaves the range of their values; this one does.
    """
    if len(found) < 2:
        return -np.inf, np.inf
    quantile = _STUDENT_95[min(len(found) - 1, len(_STUDENT_95)) - 1]
    half = quantile * float(np.std(found, ddof=1)) / len(found) ** 0.5
    return float(np.mean(found)) - half, float(np.mean(found)) + half


@functools.lru_cache(maxsize=8)
def _weights(seed: int, units: int) -> np.ndarray:
    """How often each unit is drawn in each resampling, the same for all that is compared."""
    rng = np.random.default_rng((seed, units))
    return rng.multinomial(units, np.full(units, 1.0 / units), size=RESAMPLES).astype(np.float64)


def _difference(
    one: Ratios, other: Ratios | None, factor: float, weights: np.ndarray | None
) -> np.ndarray:
    value = one.value(weights)
    return value if other is None else value - factor * other.value(weights)


def judge(kind: str, found: Estimate) -> str:
    """Judge whether a difference is the one that the check asks for.

    more: above zero. less: below zero. about: within two points either way. kept: at most two
    points below. It fails when the difference itself is not there, holds when the whole interval
    is, and with more and less every single seed too; else it is undecided.
    """
    low, high = _BOUNDS[kind]
    if not low < found.value < high:
        return FAILS
    # Of three seeds one may point the other way, and the interval still leave zero out.
    single = found.seeds if kind in ("more", "less") else ()
    ends = (found.low, found.high, *single)
    return HOLDS if all(low < end < high for end in ends) else UNDECIDED


_BOUNDS = {
    "more": (0.0, np.inf),
    "less": (-np.inf, 0.0),
    "about": (-MARGIN, MARGIN),
    "kept": (-MARGIN, np.inf),
}


def verdict(outcomes: Sequence[str]) -> str:
    """A claim reproduces when all its checks hold, and does not when one fails."""
    if FAILS in outcomes:
        return NOT_REPRODUCED
    return OPEN if UNDECIDED in outcomes else REPRODUCES
