"""Compute values, intervals and paired differences of metrics: one mechanism for all.

Where the number of rows (reports, or patients) and the seed are the same, so are the draws.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from rrgclinical.metrics.parts import Scores, chunks, joined

FEW_ROWS = 100
"""Rows below which intervals are widened as Student's t is."""


@dataclass(frozen=True)
class PairedDifference:
    """Second system minus first: the difference, its interval, and a two-sided p-value.

    p_value: None where the systems differ in fewer than `LEAST_DIFFERING` reports (or patients).
    """

    difference: float
    low: float
    high: float
    p_value: float | None


def values(scores: Scores) -> dict[str, float]:
    """Compute every metric by name, each report counted once."""
    ones = np.ones((1, scores.reports))
    return {name: float(value[0]) for name, value in scores(ones).items()}


def intervals(
    scores: Scores, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Compute (low, high) of every metric: percentile bootstrap over reports, or patients.

    Where few of them move a metric its quantiles are widened as Student's t is (`_freedom`). BLEU's
    interval is the value and as many deviations of the resamples on each side, within their range
    (`Part.corner`). An interval holds the metric's value: that of a finding without a hit begins
    at 0.
    Raises ValueError for no resample or a level outside (0, 1).
    """
    drawn = _draw(scores, resamples, seed, np.random.default_rng((seed, 1)))
    return _bounds(values(scores), drawn, level, _without_each(scores), scores)


def paired(
    first: Scores, second: Scores, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, PairedDifference]:
    """Compare two systems on the same reports: each resample draws reports for both.

    Metrics that only one of them has are left out. The p-value is that of the swap test: the share
    of ways to swap the systems' reports of some studies that leave at least this difference,
    counting the observed one, so it is never 0. All ways are tried where that takes no more than
    `resamples`.
    Raises ValueError where the numbers of reports differ, and as `intervals`.
    """
    if first.reports != second.reports:
        raise ValueError(
            f"scores of {first.reports} reports against {second.reports}; wanted the same reports"
        )
    noise = np.random.default_rng((seed, 1))
    before, after = (_draw(scores, resamples, seed, noise) for scores in (first, second))
    drawn = {name: after[name] - before[name] for name in before if name in after}
    old, new = values(first), values(second)
    observed = {name: new[name] - old[name] for name in drawn}
    left = _without_each(first)
    moves = {n: each - left[n] for n, each in _without_each(second).items() if n in left}
    bounds = _bounds(observed, drawn, level, moves, first)
    p_values = swap_p_values(first, second, resamples, seed)
    return {
        name: PairedDifference(difference, *bounds[name], p_value=p_values[name])
        for name, difference in observed.items()
    }


def bootstrap_weights(reports: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Draw the weights of R reports, float64 `[B, R]` in chunks of `resamples` rows.

    Every bootstrap draws here, so equal R, number and seed are equal draws, read-only where they
    are kept for the next one. Raises ValueError for no resample.
    """
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; wanted at least 1")
    sizes = list(chunks(reports, resamples))
    if len(sizes) == 1:
        yield _weights(reports, resamples, seed)
        return
    rng = np.random.default_rng(seed)
    for rows in sizes:
        yield _multinomial(rng, reports, rows)


@functools.lru_cache(maxsize=1)
def _weights(reports: int, resamples: int, seed: int) -> np.ndarray:
    """Draw once what all systems of a scorecard are weighed by."""
    weights = _multinomial(np.random.default_rng(seed), reports, resamples)
    weights.setflags(write=False)
    return weights


def _multinomial(rng: np.random.Generator, reports: int, rows: int) -> np.ndarray:
    return rng.multinomial(reports, np.full(reports, 1.0 / reports), size=rows) * 1.0


def _draw(
    scores: Scores, resamples: int, seed: int, noise: np.random.Generator
) -> dict[str, np.ndarray]:
    """`[resamples]` by name, over the weightings of the reports."""
    weights = bootstrap_weights(scores.reports, resamples, seed)
    return joined([scores(chunk, noise) for chunk in weights])


def _without_each(scores: Scores) -> dict[str, np.ndarray]:
    """`[R]` by name: the metric without each row, of all that get no draws of their own."""
    metrics: dict[str, np.ndarray] = {}
    for part in scores.parts:
        if scores.reports > 1 and not part.counts:
            metrics |= part.of_sums(part.statistics.sum(0) - part.statistics)
    return metrics


def _freedom(moves: np.ndarray) -> float:
    """Compute the degrees of freedom of a variance that rows make, from what each moves, `[R]`.

    Of normal rows they are R - 1. Where few rows move a metric, such as an average over labels
    that hardly occur, they are fewer, by the kurtosis of the moves (Satterthwaite, 1946).
    """
    rows = len(moves)
    squares = (moves - moves.mean()) ** 2
    variance, spread = squares.mean(), squares.var()
    return rows - 1.0 if not spread else min(rows - 1.0, 2.0 * rows * variance**2 / spread)


def tails(level: float, rows: float) -> tuple[float, float]:
    """Choose the quantiles between which `level` of the resamples of so many rows lie.

    Below `FEW_ROWS` they lie further out, by Student's t against the normal quantile and by
    n / (n - 1) of the variance. Raises ValueError for a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; wanted a confidence level in (0, 1), such as 0.95")
    tail = (1.0 - level) / 2.0
    if 1 < rows < FEW_ROWS:
        rows = max(int(rows), 2)
        tail = NormalDist().cdf(-_student(level, rows - 1) * (rows / (rows - 1)) ** 0.5)
    return tail, 1.0 - tail


@functools.lru_cache(maxsize=4096)
def _student(level: float, free: float) -> float:
    """Find the t within which `level` of Student's distribution lies."""
    # t is sqrt(free) tan(angle), whose density is cos(angle) ** (free - 1)
    edges = np.linspace(0.0, np.pi / 2, 10_001)
    mass = np.cumsum(np.cos((edges[1:] + edges[:-1]) / 2) ** (free - 1))
    angle = np.interp(level, mass / mass[-1], edges[1:])
    return float(free**0.5 * np.tan(angle))


def _bounds(
    observed: Mapping[str, float],
    drawn: Mapping[str, np.ndarray],
    level: float,
    moves: Mapping[str, np.ndarray],
    scores: Scores,
) -> dict[str, tuple[float, float]]:
    bounds, alike = {}, dict[tuple[tuple[float, float], bool], list[str]]()
    corners = {n for part in scores.parts if part.corner for n in part.of_sums(part.statistics[:1])}
    for name in observed:
        moving = 1.0 + _freedom(moves[name]) if name in moves else scores.reports
        alike.setdefault((tails(level, moving), name in corners), []).append(name)
    for (ends, corner), names in alike.items():
        draws = np.stack([drawn[name] for name in names])
        if corner:
            far = NormalDist().inv_cdf(max(ends[0], np.finfo(float).tiny))  # of few rows it is 0
            each = [observed[name] for name in names] + np.outer([far, -far], draws.std(1))
            each = each.clip(draws.min(1), draws.max(1))
        else:
            each = np.quantile(draws, ends, axis=1)
        for name, low, high in zip(names, *each, strict=True):
            bounds[name] = min(float(low), observed[name]), max(float(high), observed[name])
    return bounds


LEAST_DIFFERING = 6
"""Rows that must differ for a p-value: of five that all point one way p is 2 / 2**5 = 0.06."""


def swap_p_values(
    first: Scores, second: Scores, resamples: int, seed: int
) -> dict[str, float | None]:
    """Compute a two-sided p of each metric by swapping reports of a study.

    Were the systems equal, either could have written either report of a study. So the difference
    is held against those of all ways to swap: exact, and free of what a bootstrap of few studies
    lacks.

    Where the rows that differ in a metric can be swapped in no more than `resamples` ways, all are
    tried; else so many are drawn, and one is added to both counts. None where fewer than
    `LEAST_DIFFERING` rows differ.
    """
    swaps = _Swaps(first, second)
    alike: dict[bytes, list[str]] = {}
    for name, rows in swaps.rows_that_differ().items():
        alike.setdefault(rows.tobytes(), []).append(name)
    p_values: dict[str, float | None] = dict.fromkeys(swaps.observed)
    often = []
    for mask, names in alike.items():
        rows = np.flatnonzero(np.frombuffer(mask, dtype=bool))
        if len(rows) < LEAST_DIFFERING:
            continue
        if 2 ** len(rows) > resamples:
            often += names
            continue
        every = np.array(list(itertools.product((0.0, 1.0), repeat=len(rows))))
        ways = swaps.differences(every, rows)
        p_values |= {name: float(swaps.as_large(name, ways[name]).mean()) for name in names}
    if often:
        rng, count = np.random.default_rng((seed, 2)), swaps.rows
        drawn = joined(
            swaps.differences(rng.integers(0, 2, (chunk, count), dtype=np.int8) * 1.0)
            for chunk in chunks(count, resamples)
        )
        for name in often:
            large = int(swaps.as_large(name, drawn[name]).sum())
            p_values[name] = (large + 1) / (resamples + 1)
    return p_values


class _Swaps:
    """Two systems whose reports may be swapped in `rows` rows, those that differ.

    observed: second minus first as they are, by name.
    """

    def __init__(self, first: Scores, second: Scores) -> None:
        others = {part.key: part.statistics for part in second.parts}
        self.parts = [part for part in first.parts if part.key in others]
        self.before = [part.statistics.sum(0) for part in self.parts]
        self.after = [others[part.key].sum(0) for part in self.parts]
        gaps = [part.statistics - others[part.key] for part in self.parts]
        differing = np.any([(gap != 0).any(1) for gap in gaps], axis=0)
        self.gaps = [gap[differing] for gap in gaps]
        self.rows = int(differing.sum())
        self.whole = self._metrics([np.zeros((1, len(sums))) for sums in self.before])
        self.observed = {name: float((new - old)[0]) for name, (old, new) in self.whole.items()}

    def rows_that_differ(self) -> dict[str, np.ndarray]:
        """Find by metric the rows, bool `[rows]`, whose swap alone changes either system's."""
        return {
            name: np.any(
                [
                    ~np.isclose(swapped, whole, rtol=1e-12, atol=0.0)
                    for swapped, whole in zip(both, self.whole[name], strict=True)
                ],
                axis=0,
            )
            for name, both in self._metrics(self.gaps).items()
        }

    def differences(
        self, swapped: np.ndarray, rows: np.ndarray | slice = slice(None)
    ) -> dict[str, np.ndarray]:
        """Compute second minus first `[B]` by name; swapped is 0 or 1, `[B, rows]`."""
        both = self._metrics([swapped @ gap[rows] for gap in self.gaps])
        return {name: new - old for name, (old, new) in both.items()}

    def as_large(self, name: str, differences: np.ndarray) -> np.ndarray:
        """Find differences no smaller than the observed one; bool."""
        # sums in another order differ in their last bits
        return np.abs(differences) >= abs(self.observed[name]) * (1.0 - 1e-9)

    def _metrics(self, moved: Sequence[np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Both systems' `[B]` by name, when `moved` `[B, K]` has gone from first to second."""
        metrics: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for part, move, before, after in zip(
            self.parts, moved, self.before, self.after, strict=True
        ):
            old, new = part.of_sums(before - move), part.of_sums(after + move)
            metrics |= {name: (old[name], new[name]) for name in old}
        return metrics
