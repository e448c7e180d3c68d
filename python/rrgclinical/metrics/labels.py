"""Label metrics of `[R, 14]` class ids against the truth.

Positive means positive or uncertain, as f1chexbert's `rrg` mode. An undefined ratio is 0, as
scikit-learn's `zero_division=0`. `_5` are the five CheXpert observations, `_13` all but No Finding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rrgclinical.labels import CHEXPERT_5, NO_FINDING, OBSERVATIONS, to_binary
from rrgclinical.metrics.scores import Scores, values

_EVERY = tuple(range(len(OBSERVATIONS)))
_SETS = {
    "": _EVERY,
    "_13": tuple(column for column in _EVERY if column != NO_FINDING),
    "_5": CHEXPERT_5,
}
_RATES = ("precision", "recall", "f1")


def label_scores(pred: np.ndarray, truth: np.ndarray) -> Scores:
    """Make the label metrics of class ids `[R, 14]`, R >= 1.

    `{micro,macro,sample}_{precision,recall,f1}` over 14 observations and, with suffix `_13` and
    `_5`, over 13 and five. The sample-wise ones are means over reports of the report's own
    precision, recall and F1 (scikit-learn's `average="samples"`; `sample_f1` is the mean of
    `single_report_f1`, DEER's reward). `accuracy` is the share of cells right, `exact_5` the share
    of reports with all five right (f1chexbert's accuracy).
    Raises ValueError for no report or differing shapes.
    """
    p, t = _binary_pair(pred, truth)
    if not len(p):
        raise ValueError("labels of 0 reports; wanted at least one")
    counts = np.stack([p & t, p & ~t, ~p & t]).astype(np.float64)
    each: dict[str, np.ndarray] = {}
    for suffix, columns in _SETS.items():
        for name, value in zip(_RATES, _rates(*counts[:, :, columns].sum(2)), strict=True):
            each[f"sample_{name}{suffix}"] = value
    right = p == t
    each["accuracy"] = right.mean(1)
    each["exact_5"] = right[:, list(CHEXPERT_5)].all(1).astype(np.float64)
    return _LabelScores(counts, tuple(each), np.stack(list(each.values()), axis=1))


def label_report(pred: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compute every metric of `label_scores` by name; it raises as that."""
    return values(label_scores(pred, truth))


def finding_scores(pred: np.ndarray, truth: np.ndarray) -> Scores:
    """Make precision, recall, F1 and support of each observation, from class ids `[R, 14]`.

    Named `precision/Edema` and so on; support is the number of reports whose truth is positive.
    Raises as `label_scores`.
    """
    p, t = _binary_pair(pred, truth)
    if not len(p):
        raise ValueError("labels of 0 reports; wanted at least one")
    return _FindingScores(np.stack([p & t, p & ~t, ~p & t]).astype(np.float64))


def single_report_f1(pred: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute each report's micro-F1 over its 14 labels; float64 `[R]`.

    EditGRPO's CheXbert reward. Two reports without a positive label give 0, not 1.
    """
    p, t = _binary_pair(pred, truth)
    return _ratio(2.0 * (p & t).sum(1), p.sum(1) + t.sum(1))


def per_label_f1(pred: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute F1 of each observation over the reports; float64 `[14]`."""
    p, t = _binary_pair(pred, truth)
    return _ratio(2.0 * (p & t).sum(0), p.sum(0) + t.sum(0))


@dataclass(frozen=True)
class _LabelScores:
    counts: np.ndarray  # [3, R, 14]: hits, spurious, missed
    names: tuple[str, ...]
    each: np.ndarray  # [R, names]

    @property
    def reports(self) -> int:
        return self.counts.shape[1]

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        weighted = weights @ self.counts  # [3, B, 14]
        metrics: dict[str, np.ndarray] = {}
        for suffix, columns in _SETS.items():
            chosen = weighted[:, :, columns]
            for name, value in zip(_RATES, _rates(*chosen.sum(2)), strict=True):
                metrics[f"micro_{name}{suffix}"] = value
            for name, value in zip(_RATES, _rates(*chosen), strict=True):
                metrics[f"macro_{name}{suffix}"] = value.mean(1)
        means = weights @ self.each / weights.sum(1, keepdims=True)
        return metrics | {name: means[:, column] for column, name in enumerate(self.names)}


@dataclass(frozen=True)
class _FindingScores:
    counts: np.ndarray  # [3, R, 14]: hits, spurious, missed

    @property
    def reports(self) -> int:
        return self.counts.shape[1]

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        hit, spurious, missed = weights @ self.counts
        columns = dict(zip(_RATES, _rates(hit, spurious, missed), strict=True))
        columns["support"] = hit + missed
        return {
            f"{rate}/{finding}": value[:, column]
            for rate, value in columns.items()
            for column, finding in enumerate(OBSERVATIONS)
        }


def _rates(
    hit: np.ndarray, spurious: np.ndarray, missed: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1, in the order of `_RATES`."""
    return (
        _ratio(hit, hit + spurious),
        _ratio(hit, hit + missed),
        _ratio(2.0 * hit, 2.0 * hit + spurious + missed),
    )


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    out = np.zeros(np.shape(numerator), dtype=np.float64)
    return np.divide(numerator, denominator, out=out, where=np.asarray(denominator) != 0)


def _binary_pair(pred: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p, t = to_binary(pred).astype(bool), to_binary(truth).astype(bool)
    if p.shape != t.shape:
        raise ValueError(f"labels of {len(p)} reports against {len(t)}; wanted the same reports")
    return p, t
