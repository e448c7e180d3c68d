"""Tell when the reward of validations rises at the cost of an axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrgclinical.severity.axes import AXES

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
