"""Measure arms on populations, and decide by the rule that PREREGISTRATION.md announces.

Every measure is a mean of ratios of sums over studies (`experiments.measures.Ratios`), pooled over
the folds. Its interval is a percentile bootstrap of 95 %: within each fold the studies are drawn
with replacement, the same for both arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.human_codes import CODED
from experiments.iu_evidence.arms import Comparison
from experiments.iu_evidence.data import FINDINGS
from experiments.jobs.results import Result
from experiments.measures import Ratios, mean_of
from rrgclinical.labels import CHEXPERT_5, OBSERVATIONS, to_binary

LEVEL, RESAMPLES = 0.95, 2000
HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
ALL, ABNORMAL = "all", "abnormal"
POPULATIONS = (ALL, ABNORMAL)
SEVEN = ("micro_14", "macro_14", "micro_5", "macro_5", "entity_f1", "match", "severity")
"""The papers' columns; the last three are the offline stand-ins of RadGraph, RaTE and GREEN."""
CODED_COLUMNS = tuple(OBSERVATIONS.index(name) for name in CODED)


@dataclass(frozen=True)
class Difference:
    """A difference over all folds with its interval, and that of each fold."""

    value: float
    low: float
    high: float
    folds: tuple[float, ...]


def measured(result: Result, measure: str, population: str, part: str = "") -> Ratios:
    """A measure of a job's result; `part` is a draw of a selection.

    Raises KeyError for a measure that this kind of job does not have.
    """
    facts = result.facts
    if measure == "zero_variance" and part:
        return mean_of(_digits([facts["flat"]])[0], _digits([facts["draws"][part]])[0])
    if measure in facts.get("curves", {}):
        return mean_of(facts["curves"][measure])
    if measure == "avg":
        return _average([measured(result, name, population) for name in SEVEN])
    truth = to_binary(_digits(facts["truth"]))
    rows = truth[:, FINDINGS].any(1) if population == ABNORMAL else np.ones(len(truth), bool)
    if measure in ("bleu4", "words"):
        return mean_of(np.array(facts[measure])[rows])
    if measure in facts.get("scores", {}):
        return mean_of(np.array(facts["scores"][measure])[rows])
    if measure == "unheard":
        said = np.array(facts["sentences"], dtype=np.float64)
        return Ratios(np.array(facts["unheard"], np.float64)[rows, None], said[rows, None])
    predicted = to_binary(_digits(facts["predicted"]))[rows].astype(np.float64)
    truth, codes = truth[rows].astype(np.float64), _digits(facts["codes"])[rows]
    return _of_labels(measure, predicted, truth, codes)


def _average(parts: Sequence[Ratios]) -> Ratios:
    """The mean of measures, each repeated until all have as many parts."""
    width = math.lcm(*(part.top.shape[1] for part in parts))
    repeated = [
        [np.repeat(side, width // side.shape[1], axis=1) for side in (part.top, part.bottom)]
        for part in parts
    ]
    return Ratios(*(np.hstack(sides) for sides in zip(*repeated, strict=True)))


def _digits(rows: Sequence[str]) -> np.ndarray:
    return np.array([[int(digit) for digit in row] for row in rows], dtype=np.int8)


def _of_labels(measure: str, p: np.ndarray, t: np.ndarray, codes: np.ndarray) -> Ratios:
    thirteen = list(FINDINGS)
    if measure == "mesh":
        return _micro(p[:, CODED_COLUMNS], codes.astype(np.float64))
    if measure == "macro_14":
        return Ratios(2 * p * t, p + t)
    if measure == "sample_f1":
        top, bottom = 2 * (p * t).sum(1), (p + t).sum(1)
        return mean_of(np.divide(top, bottom, out=np.zeros(len(p)), where=bottom > 0))
    p13, t13 = p[:, thirteen], t[:, thirteen]
    five = list(CHEXPERT_5)
    return {
        "f1_13": _micro(p13, t13),
        "micro_14": _micro(p, t),
        "micro_5": _micro(p[:, five], t[:, five]),
        "macro_5": Ratios(2 * (p * t)[:, five], (p + t)[:, five]),
        "recall_13": Ratios((p13 * t13).sum(1)[:, None], t13.sum(1)[:, None]),
        "precision_13": Ratios((p13 * t13).sum(1)[:, None], p13.sum(1)[:, None]),
    }[measure]


def _micro(p: np.ndarray, t: np.ndarray) -> Ratios:
    return Ratios(2 * (p * t).sum(1)[:, None], (p + t).sum(1)[:, None])


def pooled(parts: Sequence[Ratios], weights: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Pool a measure over folds: float64 [B] under weights [B, U] of each."""
    drawn = weights or [np.ones((1, part.units)) for part in parts]
    top = sum(w @ part.top for w, part in zip(drawn, parts, strict=True))
    bottom = sum(w @ part.bottom for w, part in zip(drawn, parts, strict=True))
    top, bottom = np.asarray(top), np.asarray(bottom)
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0).mean(1)


def difference(first: Sequence[Ratios], second: Sequence[Ratios]) -> Difference:
    """Compute `first` minus `second`, one of each a fold, with its paired interval.

    Raises ValueError where the two were not measured on the same units.
    """
    for fold, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.units != other.units:
            raise ValueError(f"part {fold}: {one.units} units against {other.units}; wanted equal")
    weights = []
    for fold, part in enumerate(first):
        rng = np.random.default_rng((fold, part.units))
        even = np.full(part.units, 1.0 / part.units)
        weights.append(rng.multinomial(part.units, even, RESAMPLES).astype(np.float64))
    drawn = pooled(first, weights) - pooled(second, weights)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    folds = [
        float((one.value() - other.value())[0]) for one, other in zip(first, second, strict=True)
    ]
    value = float((pooled(first) - pooled(second))[0])
    return Difference(value, float(low), float(high), tuple(folds))


def decide(kind: str, least: float, measured_difference: Difference) -> str:
    """Decide by the announced rule whether a check holds.

    more: it holds when the difference is at least `least`, its interval lies above zero, and all
    folds but one (of four or more; else all) point that way. It fails when the whole interval lies
    below `least`, and is undecided otherwise. less: the same of the negative. kept: it holds when
    the interval lies above -least, fails when it lies below, else it is undecided.
    """
    d = measured_difference
    if kind == "kept":
        return HOLDS if d.low > -least else FAILS if d.high < -least else UNDECIDED
    if kind == "less":
        d = Difference(-d.value, -d.high, -d.low, tuple(-f for f in d.folds))
    against = sum(value <= 0 for value in d.folds)
    if d.value >= least and d.low > 0 and against <= (1 if len(d.folds) >= 4 else 0):
        return HOLDS
    return FAILS if d.high < least else UNDECIDED


def verdict(outcomes: Sequence[str]) -> str:
    """A claim holds when all checks hold, fails when one fails, and is undecided otherwise."""
    if not outcomes:
        return "measured"
    if FAILS in outcomes:
        return FAILS
    return UNDECIDED if UNDECIDED in outcomes else HOLDS


def checked(check: Comparison, results: Mapping[str, Sequence[Result]]) -> tuple[Difference, str]:
    """Compute a check's difference and outcome from its arms' results, one a fold."""
    sides = []
    for row in (check.first, check.second):
        arm, _, part = row.partition(":")
        sides.append([measured(r, check.measure, check.population, part) for r in results[arm]])
    between = difference(*sides)
    return between, decide(check.kind, check.least, between)
