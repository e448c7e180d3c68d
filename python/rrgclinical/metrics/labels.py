"""Label metrics of `[R, 14]` class ids against the truth.

Positive means positive or uncertain, as f1chexbert's `rrg` mode. An undefined ratio is 0, as
scikit-learn's `zero_division=0`. `_5` are the five CheXpert observations, `_13` all but No Finding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rrgclinical.labels import CHEXPERT_5, NO_FINDING, OBSERVATIONS, to_binary
from rrgclinical.metrics.parts import Part, Scores, mean_scores, together
from rrgclinical.metrics.scores import values

FREQUENT = 10
"""Positives in the references from which a label's F1 has a meaning of its own."""

_EVERY = tuple(range(len(OBSERVATIONS)))
_SETS = {
    "": _EVERY,
    "_13": tuple(column for column in _EVERY if column != NO_FINDING),
    "_5": CHEXPERT_5,
}
_RATES = ("precision", "recall", "f1")


def label_scores(pred: np.ndarray, truth: np.ndarray, frequent: Sequence[int] = ()) -> Scores:
    """Make the label metrics of class ids `[R, 14]`, R >= 1.

    `{micro,macro,sample}_{precision,recall,f1}` over 14 observations and, with suffix `_13` and
    `_5`, over 13 and five. The sample-wise ones are means over reports of the report's own
    precision, recall and F1 (scikit-learn's `average="samples"`; `sample_f1` is the mean of
    `single_report_f1`, DEER's reward). `accuracy` is the share of cells right, `exact_5` the share
    of reports with all five right (f1chexbert's accuracy). With columns `frequent`, such as
    `frequent_labels` of all references, `macro_{precision,recall,f1}_frequent` average those.
    Raises ValueError for no report or differing shapes.
    """
    p, t = _some_reports(pred, truth)
    counts = _counts(p, t)
    each: dict[str, np.ndarray] = {}
    for suffix, columns in _SETS.items():
        for name, value in zip(_RATES, _rates(*counts[:, :, columns].sum(2)), strict=True):
            each[f"sample_{name}{suffix}"] = value
    right = p == t
    each["accuracy"] = right.mean(1)
    each["exact_5"] = right[:, list(CHEXPERT_5)].all(1).astype(np.float64)

    def averages(sums: np.ndarray) -> dict[str, np.ndarray]:
        metrics: dict[str, np.ndarray] = {}
        for suffix, columns in _SETS.items():
            chosen = _parted(sums)[:, :, columns]
            for name, value in zip(_RATES, _rates(*chosen.sum(2)), strict=True):
                metrics[f"micro_{name}{suffix}"] = value
            for name, value in zip(_RATES, _rates(*chosen), strict=True):
                metrics[f"macro_{name}{suffix}"] = value.mean(1)
                if frequent and not suffix:
                    metrics[f"macro_{name}_frequent"] = value[:, list(frequent)].mean(1)
        return metrics

    return together(Scores((Part("labels", _flat(counts), averages),)), mean_scores(each))


def label_report(pred: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compute every metric of `label_scores` by name; it raises as that."""
    return values(label_scores(pred, truth))


def frequent_labels(truth: np.ndarray) -> list[int]:
    """List the columns of class ids `[R, 14]` with `FREQUENT` positives or more."""
    return np.flatnonzero(to_binary(truth).sum(0) >= FREQUENT).tolist()


def finding_scores(pred: np.ndarray, truth: np.ndarray) -> Scores:
    """Make precision, recall, F1 and support of each observation, from class ids `[R, 14]`.

    Named as in `rates_by_finding`. Raises as `label_scores`.
    """
    return rates_by_finding(*_some_reports(pred, truth), OBSERVATIONS)


def rates_by_finding(pred: np.ndarray, truth: np.ndarray, names: Sequence[str]) -> Scores:
    """Make precision, recall, F1 and support of each of C findings, from bool `[R, C]`.

    Named `precision/Edema` and so on, for `names`, and of all C `precision/micro` and
    `precision/macro`; support is the number of reports whose truth is positive.
    """
    width = 3 * len(names)

    def rates(sums: np.ndarray) -> dict[str, np.ndarray]:
        # resamples add to the counts of one finding, not to those of averages
        single, plain = _parted(sums[:, :width]), _parted(sums[:, width:])
        micro, macro = _rates(*plain.sum(2)), _rates(*plain)
        metrics = {
            f"support/{name}": plain[0, :, i] + plain[2, :, i] for i, name in enumerate(names)
        }
        for rate, each, pooled, mean in zip(_RATES, _rates(*single), micro, macro, strict=True):
            metrics |= {f"{rate}/{name}": each[:, i] for i, name in enumerate(names)}
            metrics |= {f"{rate}/micro": pooled, f"{rate}/macro": mean.mean(1)}
        return metrics

    counts = _flat(_counts(pred, truth))
    return Scores((Part("findings", np.concatenate([counts, counts], axis=1), rates, width),))


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


def _some_reports(pred: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p, t = _binary_pair(pred, truth)
    if not len(p):
        raise ValueError("labels of 0 reports; wanted at least one")
    return p, t


def _counts(pred: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Hits, spurious and missed, float64 `[3, R, C]`, of bool `[R, C]`."""
    return np.stack([pred & truth, pred & ~truth, ~pred & truth]).astype(np.float64)


def _flat(counts: np.ndarray) -> np.ndarray:
    """`[3, R, C]` as the statistics of a part, `[R, 3 C]`."""
    return counts.transpose(1, 0, 2).reshape(counts.shape[1], -1)


def _parted(sums: np.ndarray) -> np.ndarray:
    """`[B, 3 C]` as `[3, B, C]`."""
    return sums.reshape(len(sums), 3, sums.shape[1] // 3).transpose(1, 0, 2)


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
