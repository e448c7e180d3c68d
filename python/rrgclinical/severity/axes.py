"""Eight axes of a set of reports, whatever they were rewarded for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rrgclinical.severity.judge import SeverityJudgement, denies
from rrgclinical.severity.reading import ReportReading
from rrgclinical.severity.table import Significance

CRITICAL = 0.45
"""Weight of a finding's tier from which it is critical."""
AXES = {
    "critical_found": (1, "critical findings found"),
    "critical_invented": (-1, "critical findings invented a report"),
    "side_right": (1, "side right"),
    "severity_right": (1, "severity right"),
    "denied_though_there": (-1, "findings denied that are there"),
    "hedged": (-1, "findings hedged that are stated there"),
    "repeated": (-1, "sentences said again"),
    "length_ratio": (0, "words by the reference's"),
}
"""Axis -> sign (1 more is better, -1 less, 0 what is nearer 1), and its name in words."""


def axes(
    judgements: Sequence[SeverityJudgement],
    reports: Sequence[ReportReading],
    references: Sequence[ReportReading],
    table: Significance,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Count each axis: (counts, out of), float64 `[R]`, by name.

    The axis is the ratio of their sums. A share of none (no finding with a side) has 0 out of 0.
    """
    rows = [
        _row(one, got, want, table)
        for one, got, want in zip(judgements, reports, references, strict=True)
    ]
    table_of = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(AXES), 2)
    return {name: (table_of[:, k, 0], table_of[:, k, 1]) for k, name in enumerate(AXES)}


def _row(
    one: SeverityJudgement, report: ReportReading, reference: ReportReading, table: Significance
) -> list[tuple[float, float]]:
    critical = [i for i, f in enumerate(one.truth) if table.weight[f.concept] >= CRITICAL]
    alike = [
        (one.truth[i], one.got[j])
        for i, j, value, _ in one.pairs
        if one.truth[i].concept == one.got[j].concept
    ]
    paired = {i for i, _, _, _ in one.pairs}
    sided = [(w, g) for w, g in alike if w.side and w.side_said]
    graded = [(w, g) for w, g in alike if w.severity]
    stated = [(w, g) for w, g in alike if not w.doubt]
    return [
        (sum(i in paired for i in critical), len(critical)),
        (sum(table.weight[one.got[j].concept] >= CRITICAL for j, _, _ in one.extra), 1),
        (sum(w.side == g.side and g.side_said for w, g in sided), len(sided)),
        (sum(w.severity == g.severity for w, g in graded), len(graded)),
        (sum(denies(report, f, table, reference) for f in one.truth),
         len(one.truth)),
        (sum(g.doubt for _, g in stated), len(stated)),
        (max(0.0, report.repeated - reference.repeated), 1),
        (report.words, max(1, reference.words)),
    ]  # fmt: skip
