"""Metrics of a corpus under report weights: labels, means, bootstrap, paired tests, sub-groups."""

from __future__ import annotations

from rrgclinical.metrics.labels import (
    finding_scores,
    label_report,
    label_scores,
    per_label_f1,
    single_report_f1,
)
from rrgclinical.metrics.scores import (
    PairedDifference,
    Scores,
    bootstrap_weights,
    intervals,
    mean_scores,
    paired,
    subgroup,
    together,
    values,
)

__all__ = [
    "PairedDifference",
    "Scores",
    "bootstrap_weights",
    "finding_scores",
    "intervals",
    "label_report",
    "label_scores",
    "mean_scores",
    "paired",
    "per_label_f1",
    "single_report_f1",
    "subgroup",
    "together",
    "values",
]
