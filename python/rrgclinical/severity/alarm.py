"""Count the axes of reports; tell when a reward rises at the cost of one."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrgclinical.common.arguments import check_pairs
from rrgclinical.severity.judge import Severity, SeverityJudgement, denies
from rrgclinical.severity.reading import ReportReading
from rrgclinical.severity.table import Significance

SPAN = 3
"""Validations that a change is taken over, the first and the last of them compared."""
ERRORS = 2.0
"""Standard errors of a change, paired by study, that it must exceed."""
FEWEST = 5
"""Studies, or studies that an axis counts in, below which nothing is told."""
AXIS, ALARM = "axis/", "alarm/"

Counts = Mapping[str, tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Validated:
    """One validation of R `studies`: reward float64 `[R]`, (counts, out of) of each axis `[R]`."""

    studies: tuple[str, ...]
    reward: np.ndarray
    counts: Counts


def alarm(past: Sequence[Validated]) -> dict[str, float]:
    """Give the changes over `past` where the reward rose and an axis fell.

    Each beyond `ERRORS`. Empty otherwise, with fewer than `SPAN` validations, and where they are of
    other studies.
    """
    if len(past) < SPAN or len({one.studies for one in past}) > 1:
        return {}
    first, last = past[-SPAN], past[-1]
    rise = last.reward - first.reward
    rise = rise[np.isfinite(rise)]  # a report that nobody could score says nothing
    if len(rise) < FEWEST or not rise.mean() > max(0.0, ERRORS * _error(rise)):
        return {}
    fallen = {}
    for name, (sign, _) in AXES.items():
        change = _change(first.counts[name], last.counts[name], sign)
        if change is not None:
            fallen[f"{ALARM}{name}"] = change
    return {f"{ALARM}reward": float(rise.mean()), **fallen} if fallen else {}


def alarm_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the alarms of the logged rows, a line each."""
    lines = []
    for row in rows:
        if (gain := row.get(f"{ALARM}reward")) is None:
            continue
        falls = [
            f"{text} {'fell' if row[key] < 0 else 'rose'} by {abs(row[key]):.2f} to "
            f"{row[f'{AXIS}{name}']:.2f}"
            for name, (_, text) in AXES.items()
            if (key := f"{ALARM}{name}") in row
        ]
        lines.append(
            f"After step {int(row['step']) + 1} the reward had risen by {gain:.3f} over {SPAN} "
            f"validations, while {', '.join(falls)}: read reports before the reward is trusted."
        )
    return lines


class AxesMonitor:
    """Count the eight axes of each validation; tell when the reward rises at their cost."""

    def __init__(self, reader: Severity | None = None) -> None:
        """reader: has the table, None the packaged one."""
        self._reader = reader or Severity()
        self.past: list[Validated] = []

    def __call__(
        self,
        ids: Sequence[str],
        reports: Sequence[str],
        references: Sequence[str],
        rewards: Sequence[float] | np.ndarray,
        step: int | None = None,
    ) -> dict[str, float]:
        """Return `axis/NAME`, and `alarm/NAME` where one fell over the latest `SPAN` calls.

        All R of one validation, in any order of the ids, of which one may come again. An alarm's
        line goes to standard error where the loop's `step` is given. Raises TypeError and
        ValueError as `Severity.judge`, ValueError where the numbers differ.
        """
        reports, references = check_pairs(reports, references)
        if not len(ids) == len(reports) == len(rewards):
            raise ValueError(f"{len(ids)} ids, {len(reports)} reports, {len(rewards)} rewards")
        if not reports:
            return {}
        order = sorted(range(len(ids)), key=ids.__getitem__)
        reports, references = ([texts[i] for i in order] for texts in (reports, references))
        truth = self._reader.read(references, keep=True)
        judged = self._reader.judge(reports, references, truth)
        counts = axes(judged, self._reader.read(reports), truth, self._reader.table)
        reward = np.asarray(rewards, dtype=np.float64)[order]
        latest = Validated(tuple(ids[i] for i in order), reward, counts)
        self.past = [*self.past[1 - SPAN :], latest]
        rates = {f"{AXIS}{name}": rate for name, of in counts.items() if (rate := rate_of(of)) >= 0}
        row = {**rates, **alarm(self.past)}
        for line in [] if step is None else alarm_lines([{**row, "step": step - 1}]):
            print(line, file=sys.stderr)
        return row


def rate_of(counts: tuple[np.ndarray, np.ndarray]) -> float:
    """The axis; -1 where nothing is counted in it."""
    total = float(counts[1].sum())
    return float(counts[0].sum()) / total if total > 0 else -1.0


def _change(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray], sign: int
) -> float | None:
    """The change of an axis where it is for the worse beyond `ERRORS`, else None.

    Axes are ratios of sums, whose error is that of their linear parts, paired by study.
    """
    if min((of > 0).sum() for _, of in (before, after)) < FEWEST:
        return None
    rates = rate_of(before), rate_of(after)
    parts = [
        (count - rate * of) / of.mean()
        for (count, of), rate in zip((before, after), rates, strict=True)
    ]
    change = rates[1] - rates[0]
    worse = -sign * change if sign else abs(rates[1] - 1.0) - abs(rates[0] - 1.0)
    return change if worse > max(1e-9, ERRORS * _error(parts[1] - parts[0])) else None


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / len(values) ** 0.5


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
