"""Metrics of a corpus under report weights: labels, means, bootstrap, paired tests, sub-groups."""

from __future__ import annotations

from rrgclinical.metrics.labels import (
    bootstrap_intervals,
    finding_scores,
    label_report,
    label_scores,
    paired_bootstrap,
    per_label_f1,
    single_report_f1,
)
from rrgclinical.metrics.scores import (
    PairedDifference,
    Scores,
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
    "bootstrap_intervals",
    "finding_scores",
    "intervals",
    "label_report",
    "label_scores",
    "mean_scores",
    "paired",
    "paired_bootstrap",
    "per_label_f1",
    "single_report_f1",
    "subgroup",
    "together",
    "values",
]
