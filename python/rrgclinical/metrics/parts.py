"""Hold metrics of R reports as functions of sums over reports.

A weight is how often a report counts in the sums. All ones give the metric itself, multinomial
draws its bootstrap (`scores`), and where two systems swap their reports of a study a test of their
difference (`scores` too). Rows may be patients (`of_patients`) or a sub-group (`subgroup`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

_CHUNK_CELLS = 1 << 22
"""Largest resample-by-report matrix held at once."""
_PRIOR = 1 / 3
"""Shape of the gamma draw that each count of a finding gets in a resample."""


@dataclass(frozen=True)
class Part:
    """Hold metrics of one kind: float64 `[R, K]`, and what its sums `[B, K]` give.

    counts: so many of the first columns are few events, whose sums get a gamma(1/3) draw in each
    resample: no hit among three positives does not say that there never is one. corner: the metric
    is kept down on one side, as BLEU by the penalty of what is shorter than its reference, so that
    its resamples lie lower than it does.
    """

    key: str
    statistics: np.ndarray
    of_sums: Callable[[np.ndarray], Mapping[str, np.ndarray]]
    counts: int = 0
    corner: bool = False


@dataclass(frozen=True)
class Scores:
    """Metrics of R reports by name, under weights of the reports."""

    parts: tuple[Part, ...]

    @property
    def reports(self) -> int:
        """R, the number of patients after `of_patients`."""
        return len(self.parts[0].statistics)

    def __call__(
        self, weights: np.ndarray, noise: np.random.Generator | None = None
    ) -> dict[str, np.ndarray]:
        """float64 `[B]` by name, for weights `[B, R]` >= 0 with row sums > 0.

        A weight counts its report that many times. noise: draws for the counts of findings, where
        the weights are a resample. Raises ValueError for a name that two parts have.
        """
        every: dict[str, np.ndarray] = {}
        for part in self.parts:
            sums = weights @ part.statistics
            if noise is not None and part.counts:
                sums[:, : part.counts] += noise.gamma(_PRIOR, size=(len(sums), part.counts))
            metrics = part.of_sums(sums)
            if twice := every.keys() & metrics.keys():
                raise ValueError(f"two parts have a metric {sorted(twice)[0]!r}; rename one")
            every |= metrics
        return every


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
    return Scores(tuple(_mean(name, array) for name, array in arrays.items()))


def _mean(name: str, array: np.ndarray) -> Part:
    statistics = np.stack([array, np.ones(len(array))], axis=1)
    return Part(name, statistics, lambda sums: {name: sums[:, 0] / sums[:, 1]})


def together(*parts: Scores) -> Scores:
    """Join scores of the same reports, so that they share their draws.

    Raises ValueError for no part or differing numbers of reports; a name that two parts have is
    an error when the scores are called.
    """
    sizes = [part.reports for part in parts]
    if len(set(sizes)) != 1:
        raise ValueError(f"scores of {sizes} reports; wanted parts over the same reports")
    return Scores(tuple(itertools.chain.from_iterable(part.parts for part in parts)))


def averaged(scores: Scores, names: Sequence[str], key: str) -> Scores:
    """Add the mean of some metrics, under their weights; nothing where one lacks."""
    ones = np.ones((1, scores.reports))
    measured = [set(part.of_sums(ones @ part.statistics)) for part in scores.parts]
    if not set().union(*measured) >= set(names):
        return scores
    parts = [p for p, own in zip(scores.parts, measured, strict=True) if own & set(names)]
    ends = np.cumsum([part.statistics.shape[1] for part in parts])[:-1]

    def of_sums(sums: np.ndarray) -> dict[str, np.ndarray]:
        every: dict[str, np.ndarray] = {}
        for part, own in zip(parts, np.split(sums, ends, axis=1), strict=True):
            every |= part.of_sums(own)
        return {key: np.mean([every[name] for name in names], axis=0)}

    statistics = np.concatenate([part.statistics for part in parts], axis=1)
    return Scores((*scores.parts, Part(key, statistics, of_sums)))


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
    return _of_rows(scores, lambda statistics: statistics[members])


def of_patients(scores: Scores, patients: Sequence[Hashable]) -> Scores:
    """Make scores whose rows are patients, from the patient of each of R reports.

    A draw then takes a patient with all reports, which are no independent ones; values stay.
    Raises ValueError for another number of reports.
    """
    if len(patients) != scores.reports:
        raise ValueError(f"patients of {len(patients)} reports; wanted {scores.reports}")
    numbers = {patient: number for number, patient in enumerate(dict.fromkeys(patients))}
    if len(numbers) == len(patients):
        return scores
    owner = [numbers[patient] for patient in patients]

    def summed(statistics: np.ndarray) -> np.ndarray:
        sums = np.zeros((len(numbers), statistics.shape[1]))
        np.add.at(sums, owner, statistics)
        return sums

    return _of_rows(scores, summed)


def _of_rows(scores: Scores, rows: Callable[[np.ndarray], np.ndarray]) -> Scores:
    return Scores(tuple(replace(p, statistics=rows(p.statistics)) for p in scores.parts))


def chunks(reports: int, resamples: int) -> Iterator[int]:
    """Part resamples so that their matrix of weights stays small; yield the rows."""
    chunk = max(1, _CHUNK_CELLS // reports)
    for start in range(0, resamples, chunk):
        yield min(chunk, resamples - start)


def joined(parts: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Concatenate `[B]` by name of several parts."""
    listed = list(parts)
    return {name: np.concatenate([part[name] for part in listed]) for name in listed[0]}
