"""Label metrics of two systems of `[R, 14]` class ids, with bootstrap intervals.

Positive means positive or uncertain, as f1chexbert's `rrg` mode. An undefined ratio is 0, as
scikit-learn's `zero_division=0`. `_5` are the five CheXpert observations, `_13` all but No Finding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rrgclinical.labels import CHEXPERT_5, NO_FINDING, OBSERVATIONS, to_binary

_CHUNK_CELLS = 1 << 22
"""Largest resample-by-report matrix held at once."""


def label_report(pred: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Every metric by name, from class ids `[R, 14]`, R >= 1.

    `{micro,macro}_{precision,recall,f1}` over 14 observations and, with suffix `_13` and `_5`, over
    13 and five;
    `sample_f1`, the mean of `single_report_f1` (DEER's reward); `accuracy`, the share of cells
    right; `exact_5`, the share of reports with all five right (f1chexbert's accuracy).
    Raises ValueError for no report or differing shapes.
    """
    counts = _Counts.of(pred, truth)
    values = counts.scores(np.full((1, counts.reports), 1.0))
    return {name: float(value[0]) for name, value in values.items()}


def single_report_f1(pred: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute each report's micro-F1 over its 14 labels; float64 `[R]`.

    EditGRPO's CheXbert reward. Two reports without a positive label give 0, not 1.
    """
    p, t = _binary_pair(pred, truth)
    return _ratio(2.0 * (p & t).sum(1), p.sum(1) + t.sum(1))


def per_label_f1(pred: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """float64 `[14]`: F1 of each observation over the reports."""
    p, t = _binary_pair(pred, truth)
    return _ratio(2.0 * (p & t).sum(0), p.sum(0) + t.sum(0))


def bootstrap_intervals(
    pred: np.ndarray,
    truth: np.ndarray,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """(low, high) of every metric of `label_report`: percentile bootstrap over reports."""
    counts = _Counts.of(pred, truth)
    draws = _collect(counts.scores, counts.reports, resamples, seed)
    low, high = _tails(level)
    return {
        name: (float(np.quantile(values, low)), float(np.quantile(values, high)))
        for name, values in draws.items()
    }


@dataclass(frozen=True)
class PairedDifference:
    """Second system minus first: the difference, its interval, and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    first: np.ndarray,
    second: np.ndarray,
    truth: np.ndarray,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, PairedDifference]:
    """Compares two systems on the same reports, each resample drawing reports for both.

    The p-value is twice the smaller share of resamples on either side of zero (counting the
    observed one, so it is never 0), at most 1. All arrays are class ids `[R, 14]`.
    """
    one, two = _Counts.of(first, truth), _Counts.of(second, truth)

    def differences(weights: np.ndarray) -> dict[str, np.ndarray]:
        before, after = one.scores(weights), two.scores(weights)
        return {name: after[name] - before[name] for name in before}

    observed = differences(np.full((1, one.reports), 1.0))
    draws = _collect(differences, one.reports, resamples, seed)
    low, high = _tails(level)
    result = {}
    for name, values in draws.items():
        below = (np.count_nonzero(values <= 0) + 1) / (resamples + 1)
        above = (np.count_nonzero(values >= 0) + 1) / (resamples + 1)
        result[name] = PairedDifference(
            difference=float(observed[name][0]),
            low=float(np.quantile(values, low)),
            high=float(np.quantile(values, high)),
            p_value=float(min(1.0, 2.0 * min(below, above))),
        )
    return result


@dataclass(frozen=True)
class _Counts:
    """Per report: hits, false and missed positives `[R, 14]`, and the report's own scores."""

    hit: np.ndarray
    spurious: np.ndarray
    missed: np.ndarray
    sample_f1: np.ndarray
    accuracy: np.ndarray
    exact_5: np.ndarray

    @property
    def reports(self) -> int:
        return self.hit.shape[0]

    @classmethod
    def of(cls, pred: np.ndarray, truth: np.ndarray) -> _Counts:
        p, t = _binary_pair(pred, truth)
        if not len(p):
            raise ValueError("labels of 0 reports; wanted at least one")
        right = p == t
        return cls(
            hit=(p & t).astype(np.float64),
            spurious=(p & ~t).astype(np.float64),
            missed=(~p & t).astype(np.float64),
            sample_f1=single_report_f1(pred, truth),
            accuracy=right.mean(1),
            exact_5=right[:, list(CHEXPERT_5)].all(1).astype(np.float64),
        )

    def scores(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Metrics `[B]` under report weights `[B, R]`, rows summing to R."""
        hit, spurious, missed = (weights @ c for c in (self.hit, self.spurious, self.missed))
        values: dict[str, np.ndarray] = {}
        every = range(len(OBSERVATIONS))
        findings = [c for c in every if c != NO_FINDING]
        for columns, suffix in ((every, ""), (findings, "_13"), (CHEXPERT_5, "_5")):
            chosen = [c[:, list(columns)] for c in (hit, spurious, missed)]
            pooled = [c.sum(1) for c in chosen]
            for name, value in _rates(*pooled).items():
                values[f"micro_{name}{suffix}"] = value
            for name, value in _rates(*chosen).items():
                values[f"macro_{name}{suffix}"] = value.mean(1)
        for name in ("sample_f1", "accuracy", "exact_5"):
            values[name] = weights @ getattr(self, name) / self.reports
        return values


def _rates(hit: np.ndarray, spurious: np.ndarray, missed: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "precision": _ratio(hit, hit + spurious),
        "recall": _ratio(hit, hit + missed),
        "f1": _ratio(2.0 * hit, 2.0 * hit + spurious + missed),
    }


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    out = np.zeros(np.shape(numerator), dtype=np.float64)
    return np.divide(numerator, denominator, out=out, where=np.asarray(denominator) != 0)


def _binary_pair(pred: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p, t = to_binary(pred).astype(bool), to_binary(truth).astype(bool)
    if p.shape != t.shape:
        raise ValueError(f"labels of {len(p)} reports against {len(t)}; wanted the same reports")
    return p, t


def _collect(
    statistic: Callable[[np.ndarray], dict[str, np.ndarray]],
    reports: int,
    resamples: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """`statistic` over `resamples` multinomial weightings of the reports, in chunks."""
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; wanted at least 1")
    rng = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_CELLS // reports)
    share = np.full(reports, 1.0 / reports)
    parts = [
        statistic(rng.multinomial(reports, share, size=min(chunk, resamples - start)) * 1.0)
        for start in range(0, resamples, chunk)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _tails(level: float) -> tuple[float, float]:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; wanted a confidence level in (0, 1), such as 0.95")
    return (1.0 - level) / 2.0, (1.0 + level) / 2.0
