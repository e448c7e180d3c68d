"""Curves from metrics rows: gaps at non-finite values, thinned and smoothed for drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

POINTS = 400
"""Points kept of a curve: more than a figure has pixels for is only weight."""


@dataclass(frozen=True)
class Series:
    """`x` ascending, `y` with NaN where a value was not finite; `broken` counts those."""

    name: str
    x: list[float]
    y: list[float]
    broken: int = 0

    def finite(self) -> list[float]:
        return [v for v in self.y if math.isfinite(v)]

    def last(self) -> float | None:
        values = self.finite()
        return values[-1] if values else None


def curve(rows: Sequence[Mapping[str, Any]], phase: str, key: str, name: str) -> Series | None:
    """Read one metric over the steps of a phase; None where never logged.

    A step logged twice (a resumed run) counts with its last value.
    """
    values = {row["step"]: float(row[key]) for row in rows if row["phase"] == phase and key in row}
    if not values:
        return None
    steps = sorted(values)
    y = [values[s] if math.isfinite(values[s]) else math.nan for s in steps]
    return Series(name, [float(s) for s in steps], y, sum(math.isnan(v) for v in y))


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
