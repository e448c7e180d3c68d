"""Curves from metrics rows: gaps at non-finite values, thinned and smoothed for drawing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rrgreport.names import changes_labels, changes_reward

POINTS = 400
"""Points kept of a curve: more than a figure has pixels for is only weight."""

CHANGED = "_changed"
"""Key of a row's marks, see `with_changes`."""
_OF_REWARDS = ("zero_variance", "zero_reward", "zero_groups", "oracle/zero_rate")


@dataclass(frozen=True)
class Series:
    """`x` ascending, `y` with NaN where a value was not finite; `broken` counts those."""

    name: str
    x: list[float]
    y: list[float]
    broken: int = 0
    cuts: tuple[int, ...] = ()
    """Indices of points that cannot be compared with those before them."""

    def finite(self) -> list[float]:
        return [v for v in self.y if math.isfinite(v)]

    def last(self) -> float | None:
        values = self.finite()
        return values[-1] if values else None


def with_changes(
    rows: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Mark each row with how often reward and labels had changed before it.

    `changes` are those of a run's summary; `curve` reads the marks.
    """
    marked: list[Mapping[str, Any]] = []
    for index, row in enumerate(rows):
        keys = [change["key"] for change in changes if change["row"] <= index]
        marks = {CHANGED: (sum(map(changes_reward, keys)), sum(map(changes_labels, keys)))}
        marked.append({**row, **marks} if any(marks[CHANGED]) else row)
    return marked


def curve(rows: Sequence[Mapping[str, Any]], phase: str, key: str, name: str) -> Series | None:
    """Read one metric over the steps of a phase; None where never logged.

    A step logged twice (a resumed run) counts with its last value. The series is cut where what
    the metric depends on has changed, see `with_changes`.
    """
    points = {
        row["step"]: (float(row[key]), _kind(row, key))
        for row in rows
        if row["phase"] == phase and key in row
    }
    if not points:
        return None
    steps = sorted(points)
    y = [points[s][0] if math.isfinite(points[s][0]) else math.nan for s in steps]
    kinds = [points[s][1] for s in steps]
    cuts = tuple(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1])
    return Series(name, [float(s) for s in steps], y, sum(math.isnan(v) for v in y), cuts)


def _kind(row: Mapping[str, Any], key: str) -> int:
    reward, labels = row.get(CHANGED, (0, 0))
    head = key.partition("/")[0]
    if head.startswith("reward") or key in _OF_REWARDS:
        return int(reward + labels)
    return int(labels) if "f1" in head.split("_") else 0


def apart(series: Series, work: Callable[[Series], Series]) -> Series:
    """Do `work` on each part between the cuts, and leave gaps there."""
    x, y = list[float](), list[float]()
    for begin, end in pairwise((0, *series.cuts, len(series.x))):
        part = work(Series(series.name, series.x[begin:end], series.y[begin:end]))
        if x:
            x, y = [*x, (x[-1] + part.x[0]) / 2], [*y, math.nan]
        x, y = [*x, *part.x], [*y, *part.y]
    return Series(series.name, x, y, series.broken)


def thinned(series: Series) -> Series:
    """Thin a series to at most POINTS means of neighbours; NaN stays NaN."""
    size = math.ceil(len(series.x) / POINTS)
    if size <= 1:
        return series
    x = [_mean(series.x[i : i + size]) for i in range(0, len(series.x), size)]
    y = [_mean(series.y[i : i + size]) for i in range(0, len(series.y), size)]
    return Series(series.name, x, y, series.broken)


def smoothed(series: Series) -> Series:
    """Centred moving mean over a fifteenth of the curve, NaN staying NaN.

    Towards the ends the window narrows, to a third at most: symmetric as long as it can be, so
    that it does not lean inwards, and never so narrow that the ends follow the noise.
    """
    last = len(series.y) - 1
    half = len(series.x) // 30
    if half == 0:
        return series
    y = []
    for i, value in enumerate(series.y):
        reach = max(min(half, i, last - i), half // 3, 1)
        near = [v for v in series.y[max(0, i - reach) : i + reach + 1] if math.isfinite(v)]
        y.append(_mean(near) if math.isfinite(value) else math.nan)
    return Series(series.name, series.x, y, series.broken)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
