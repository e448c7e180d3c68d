"""Metrics of R reports as functions of report weights: one mechanism for all statistics.

A weight is how often a report counts. All ones give the metric itself, multinomial draws its
bootstrap, zeros outside a sub-group the metric of that group (`subgroup`), and two systems under
the same draws a paired comparison. Where R and the seed are the same, so are the draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

_CHUNK_CELLS = 1 << 22
"""Largest resample-by-report matrix held at once."""


class Scores(Protocol):
    """Metrics of R reports by name, under weights of the reports."""

    @property
    def reports(self) -> int:
        """R."""
        ...

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """float64 `[B]` by name, for weights `[B, R]` >= 0 with row sums > 0.

        A weight counts its report that many times; a row's sum stands for the number of reports.
        """
        ...


@dataclass(frozen=True)
class PairedDifference:
    """Second system minus first: the difference, its interval, and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def values(scores: Scores) -> dict[str, float]:
    """Compute every metric by name, each report counted once."""
    ones = np.ones((1, scores.reports))
    return {name: float(value[0]) for name, value in scores(ones).items()}


def intervals(
    scores: Scores, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Compute (low, high) of every metric: percentile bootstrap over reports.

    Raises ValueError for no resample or a level outside (0, 1).
    """
    low, high = _tails(level)
    draws = _draw(scores, resamples, seed)
    return {name: _quantiles(drawn, low, high) for name, drawn in draws.items()}


def paired(
    first: Scores, second: Scores, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, PairedDifference]:
    """Compare two systems on the same reports: each resample draws reports for both.

    Metrics that only one of them has are left out. The p-value is twice the smaller share of
    resamples on either side of zero (counting the observed one, so it is never 0), at most 1.
    Raises ValueError where the numbers of reports differ, and as `intervals`.
    """
    if first.reports != second.reports:
        raise ValueError(
            f"scores of {first.reports} reports against {second.reports}; wanted the same reports"
        )
    low, high = _tails(level)
    difference = _Difference(first, second)
    observed = values(difference)
    result = {}
    for name, drawn in _draw(difference, resamples, seed).items():
        below = (np.count_nonzero(drawn <= 0) + 1) / (resamples + 1)
        above = (np.count_nonzero(drawn >= 0) + 1) / (resamples + 1)
        p_value = float(min(1.0, 2.0 * min(below, above)))
        bounds = _quantiles(drawn, low, high)
        result[name] = PairedDifference(observed[name], *bounds, p_value=p_value)
    return result


def mean_scores(each: Mapping[str, np.ndarray]) -> Scores:
    """Make scores that are means over reports, from values `[R]` by name.

    Raises ValueError for no metric, no report, differing lengths, or a value that is not finite:
    a report without a value must be left out of all metrics, or its metric of all reports.
    """
    arrays = {name: np.asarray(column, dtype=np.float64) for name, column in each.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 1 or not shape[0]:
        sizes = {name: array.shape for name, array in arrays.items()}
        raise ValueError(f"values of reports have shapes {sizes}; wanted one [R] with R >= 1")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            index = int(np.flatnonzero(~np.isfinite(array))[0])
            raise ValueError(f"{name} of report {index} is {array[index]}; wanted a finite value")
    return _Means(tuple(arrays), np.stack(list(arrays.values()), axis=1))


def together(*parts: Scores) -> Scores:
    """Join scores of the same reports, so that they share their draws.

    Raises ValueError for no part or differing numbers of reports; a name that two parts have is
    an error when the scores are called.
    """
    sizes = [part.reports for part in parts]
    if len(set(sizes)) != 1:
        raise ValueError(f"scores of {sizes} reports; wanted parts over the same reports")
    return _Together(parts)


def subgroup(scores: Scores, members: np.ndarray) -> Scores:
    """Make the scores of the reports where `members` (bool `[R]`) holds; draws stay among them.

    Statistics of the whole corpus stay those of all R: CIDEr's document frequencies.
    Raises ValueError for another shape or a group without reports.
    """
    members = np.asarray(members)
    if members.dtype != bool or members.shape != (scores.reports,):
        raise ValueError(
            f"members has dtype {members.dtype} and shape {members.shape}; "
            f"wanted bool [{scores.reports}]"
        )
    if not members.any():
        raise ValueError("a sub-group of 0 reports; wanted at least one")
    return _Subgroup(scores, np.flatnonzero(members))


@dataclass(frozen=True)
class _Means:
    names: tuple[str, ...]
    each: np.ndarray  # [R, names]

    @property
    def reports(self) -> int:
        return len(self.each)

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        means = weights @ self.each / weights.sum(1, keepdims=True)
        return {name: means[:, column] for column, name in enumerate(self.names)}


@dataclass(frozen=True)
class _Together:
    parts: tuple[Scores, ...]

    @property
    def reports(self) -> int:
        return self.parts[0].reports

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        joined: dict[str, np.ndarray] = {}
        for part in self.parts:
            metrics = part(weights)
            if twice := joined.keys() & metrics.keys():
                raise ValueError(f"two parts have a metric {sorted(twice)[0]!r}; rename one")
            joined |= metrics
        return joined


@dataclass(frozen=True)
class _Subgroup:
    whole: Scores
    members: np.ndarray  # indices

    @property
    def reports(self) -> int:
        return len(self.members)

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        spread = np.zeros((len(weights), self.whole.reports))
        spread[:, self.members] = weights
        return self.whole(spread)


@dataclass(frozen=True)
class _Difference:
    first: Scores
    second: Scores

    @property
    def reports(self) -> int:
        return self.first.reports

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        before, after = self.first(weights), self.second(weights)
        return {name: after[name] - before[name] for name in before if name in after}


def bootstrap_weights(reports: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Draw the weights of R reports, float64 `[B, R]` in chunks of `resamples` rows.

    Every bootstrap draws here, so equal R, number and seed are equal draws. Raises ValueError for
    no resample.
    """
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; wanted at least 1")
    rng = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_CELLS // reports)
    share = np.full(reports, 1.0 / reports)
    for start in range(0, resamples, chunk):
        yield rng.multinomial(reports, share, size=min(chunk, resamples - start)) * 1.0


def _draw(scores: Scores, resamples: int, seed: int) -> dict[str, np.ndarray]:
    """`[resamples]` by name, over the weightings of the reports."""
    parts = [scores(weights) for weights in bootstrap_weights(scores.reports, resamples, seed)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _tails(level: float) -> tuple[float, float]:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; wanted a confidence level in (0, 1), such as 0.95")
    return (1.0 - level) / 2.0, (1.0 + level) / 2.0


def _quantiles(drawn: np.ndarray, low: float, high: float) -> tuple[float, float]:
    return float(np.quantile(drawn, low)), float(np.quantile(drawn, high))
