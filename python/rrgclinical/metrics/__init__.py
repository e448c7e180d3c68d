"""Metrics of a corpus under report weights: labels, means, bootstrap, paired tests, sub-groups."""

from __future__ import annotations

from rrgclinical.metrics.labels import (
    FREQUENT,
    finding_scores,
    frequent_labels,
    label_report,
    label_scores,
    per_label_f1,
    rates_by_finding,
    single_report_f1,
)
from rrgclinical.metrics.parts import (
    Part,
    Scores,
    averaged,
    mean_scores,
    of_patients,
    subgroup,
    together,
)
from rrgclinical.metrics.scores import (
    LEAST_DIFFERING,
    PairedDifference,
    bootstrap_weights,
    intervals,
    paired,
    tails,
    values,
)

__all__ = [
    "FREQUENT",
    "LEAST_DIFFERING",
    "PairedDifference",
    "Part",
    "Scores",
    "averaged",
    "bootstrap_weights",
    "finding_scores",
    "frequent_labels",
    "intervals",
    "label_report",
    "label_scores",
    "mean_scores",
    "of_patients",
    "paired",
    "per_label_f1",
    "rates_by_finding",
    "single_report_f1",
    "subgroup",
    "tails",
    "together",
    "values",
]
