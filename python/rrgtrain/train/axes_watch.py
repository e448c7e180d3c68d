"""Watch axes of validation reports, and tell when the reward rises at their cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rrgclinical.severity import AXES, Severity, axes
from rrgtrain.train.evaluate import Evaluation

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


class AxesWatch:
    """Add axes to the metrics of each evaluation, and an alarm.

    Rows get `axis/NAME`, and beside a rising reward `alarm/NAME`, by how much the axis changed;
    `alarm/reward` is the reward's gain. Studies without a reference have no axes.
    """

    def __init__(
        self,
        scored_text: Callable[[Sequence[str]], list[str]],
        reader: Severity | None = None,
    ) -> None:
        """scored_text: cuts the report from a completion. reader: has the table."""
        self._scored_text, self._reader = scored_text, reader or Severity()
        self._past: list[Validated] = []

    def __call__(self, evaluation: Evaluation) -> dict[str, float]:
        """The metrics of an evaluation; the latest `SPAN` are kept."""
        rows = evaluation.metrics()
        references = [study.report for study in evaluation.studies]
        truth = [text for text in references if text is not None]
        if not truth or len(truth) < len(references):
            return rows
        counts = self._counts(self._scored_text(evaluation.reports), truth)
        rates = {f"{AXIS}{name}": rate for name, of in counts.items() if (rate := _rate(of)) >= 0}
        ids = tuple(study.id for study in evaluation.studies)
        latest = Validated(ids, evaluation.rewards["total"], counts)
        self._past = [*self._past[1 - SPAN :], latest]
        return {**rows, **rates, **alarm(self._past)}

    def _counts(self, reports: Sequence[str], references: Sequence[str]) -> Counts:
        reader = self._reader
        truth = reader.read(references, keep=True)
        judged = reader.judge(reports, references, truth)
        return axes(judged, reader.read(reports), truth, reader.table)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "past": [
                {
                    "studies": list(one.studies),
                    "reward": torch.as_tensor(one.reward),
                    "counts": {n: torch.as_tensor(np.stack(of)) for n, of in one.counts.items()},
                }
                for one in self._past
            ]
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        self._past = [
            Validated(
                tuple(one["studies"]),
                one["reward"].numpy(),
                {name: tuple(of.numpy()) for name, of in one["counts"].items()},
            )
            for one in saved["past"]
        ]


def alarm(past: Sequence[Validated]) -> dict[str, float]:
    """Give the changes over `past` where the reward rose and an axis fell.

    Each beyond `ERRORS`. Empty otherwise, with fewer than `SPAN` validations, and where they are of
    other studies.
    """
    if len(past) < SPAN or len({one.studies for one in past}) > 1:
        return {}
    first, last = past[-SPAN], past[-1]
    rise = last.reward - first.reward
    # written so that a reward of NaN has not risen
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


def _rate(counts: tuple[np.ndarray, np.ndarray]) -> float:
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
    rates = _rate(before), _rate(after)
    parts = [
        (count - rate * of) / of.mean()
        for (count, of), rate in zip((before, after), rates, strict=True)
    ]
    change = rates[1] - rates[0]
    worse = -sign * change if sign else abs(rates[1] - 1.0) - abs(rates[0] - 1.0)
    return change if worse > max(1e-9, ERRORS * _error(parts[1] - parts[0])) else None


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / len(values) ** 0.5
