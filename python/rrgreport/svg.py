"""Draw charts as inline SVG, coloured by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from rrgreport import numbers
from rrgreport.series import Series

WIDTH, HEIGHT = 360.0, 214.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 12.0, 10.0, 34.0


def ticks(low: float, high: float) -> list[float]:
    """Choose round numbers (1, 2, 2.5, 5 times powers of ten) that enclose [low, high]."""
    # Below the smallest normal numbers a step has no logarithm, and far below the values
    # themselves two ticks are the same number.
    if high - low < max(1e-300, 1e-9 * max(abs(low), abs(high))):
        pad = abs(low) * 0.1
        low, high = (low - pad, high + pad) if pad else (0.0, 1.0)
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


class _Axes:
    """Maps data to the drawing; y grows upwards."""

    def __init__(self, x: tuple[float, float], y_ticks: list[float]) -> None:
        self.x_low, self.x_high = x if x[1] > x[0] else (x[0] - 0.5, x[0] + 0.5)
        self.y_ticks = y_ticks

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def draw(self, percent: bool = False) -> list[str]:
        parts = []
        for value in self.y_ticks:
            y = self.y(value)
            label = f"{100 * value:g} %" if percent else numbers.tick(value)
            parts.append(segment("grid", LEFT, y, WIDTH - RIGHT, y))
            parts.append(text("tick", LEFT - 6, y + 3.5, label, "end"))
        for value in ticks(self.x_low, self.x_high):
            if self.x_low <= value <= self.x_high:
                parts.append(
                    text("tick", self.x(value), HEIGHT - BOTTOM + 14, numbers.tick(value), "middle")
                )
        parts.append(text("axis", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "step", "middle"))
        return parts


@dataclass(frozen=True)
class Line:
    """A series in a colour class; `unsmoothed` is drawn faintly behind it."""

    colour: str
    series: Series
    unsmoothed: Series | None = None


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    from_zero: bool = False,
    percent: bool = False,
    rule: tuple[float, str] | None = None,
) -> Markup:
    """Draw lines over training steps; gaps where values are NaN.

    `label` is what a screen reader says; `rule` draws a named vertical line. Raises ValueError
    when no series holds a finite value.
    """
    faint = [(line.colour, line.unsmoothed) for line in lines if line.unsmoothed is not None]
    strong = [(line.colour, line.series) for line in lines]
    every = [series for _, series in (*faint, *strong)]
    values = [v for s in every for v in s.finite()]
    if not values:
        raise ValueError("no finite value to draw; leave the chart out")
    xs = [x for s in every for x in s.x]
    low = min(0.0, *values) if from_zero else min(values)
    # From 0 in every chart: validations begin later than training, and are read beside it.
    axes = _Axes((min(0.0, *xs), max(xs)), ticks(low, max(values)))
    parts = axes.draw(percent)
    if rule is not None:
        x = axes.x(rule[0])
        parts.append(segment("rule", x, TOP, x, HEIGHT - BOTTOM))
        parts.append(text("axis", x + 4, TOP + 8, rule[1], "start"))
    for name, group in (("faint", faint), ("line", strong)):
        for colour, series in group:
            parts += _line(axes, series, f"{name} {colour}")
    return drawing(parts, label)


def stacked_chart(layers: Sequence[Series], colours: Sequence[str], *, label: str) -> Markup:
    """Stack areas; all layers share their x and hold finite values >= 0.

    `colours` are the colour classes of the layers.
    """
    totals = [sum(column) for column in zip(*(s.y for s in layers), strict=True)]
    axes = _Axes((min(0.0, layers[0].x[0]), layers[0].x[-1]), ticks(0.0, max(totals)))
    parts = axes.draw()
    base = [0.0] * len(totals)
    for layer, colour in zip(layers, colours, strict=True):
        top = [b + v for b, v in zip(base, layer.y, strict=True)]
        outline = list(zip(layer.x, top, strict=True)) + list(zip(layer.x, base, strict=True))[::-1]
        points = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in outline)
        parts.append(f'<polygon class="area {colour}" points="{points}"/>')
        base = top
    return drawing(parts, label)


def _line(axes: _Axes, series: Series, style: str) -> list[str]:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(series.x, series.y, strict=True):
        if math.isfinite(y):
            runs[-1].append((axes.x(x), axes.y(y)))
        elif runs[-1]:
            runs.append([])
    parts = []
    for run in runs:
        if len(run) == 1:
            parts.append(dot(f"dot {style}", *run[0], 2.5))
        elif run:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
            parts.append(f'<polyline class="{style}" points="{points}"/>')
    return parts


def segment(style: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight line of the class `style`."""
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def dot(style: str, x: float, y: float, radius: float) -> str:
    """A disc of the class `style`."""
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def text(style: str, x: float, y: float, content: str, anchor: str) -> str:
    """Words, escaped; `anchor` (start, middle, end) is what of them stands at x."""
    return (
        f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def drawing(
    parts: Sequence[str], label: str, width: float = WIDTH, height: float = HEIGHT
) -> Markup:
    """The parts as one picture; `label` is what a screen reader says."""
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )
