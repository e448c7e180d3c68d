"""The figure of a claim: intervals side by side, or curves over steps."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from experiments.replicate.claims import MEASURES
from experiments.replicate.outcome import Outcome
from rrgreport import numbers
from rrgreport.series import Series, smoothed, thinned
from rrgreport.svg import Line, dot, drawing, line_chart, segment, text, ticks

WIDTH, LABELS, RIGHT, ROW, TOP, BOTTOM = 560.0, 150.0, 20.0, 30.0, 8.0, 36.0
COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5")


def figure_of(outcome: Outcome) -> tuple[Markup, list[tuple[str, str]]]:
    """Draw the figure of a claim.

    Also give (colour class, name) of what is in it where a legend is needed."""
    if outcome.claim.curve:
        return _curves(outcome)
    return interval_chart(outcome), []


def interval_chart(outcome: Outcome) -> Markup:
    """One line a row: its 90 % interval, its mean, and faintly each seed."""
    measure = outcome.claim.figure
    shown = [(r.row.label, r.values[measure]) for r in outcome.rows if measure in r.values]
    ends = [end for _, found in shown for end in (found.low, found.high, *found.seeds)]
    marks = ticks(min(ends), max(ends))
    height = TOP + ROW * len(shown) + BOTTOM
    foot = height - BOTTOM

    def x(value: float) -> float:
        share = (value - marks[0]) / (marks[-1] - marks[0])
        return LABELS + share * (WIDTH - LABELS - RIGHT)

    parts = []
    for mark in marks:
        parts.append(segment("grid", x(mark), TOP, x(mark), foot))
        parts.append(text("tick", x(mark), foot + 14, numbers.tick(mark), "middle"))
    middle = (LABELS + WIDTH - RIGHT) / 2
    parts.append(text("axis", middle, height - 4, MEASURES[measure], "middle"))
    for i, (label, found) in enumerate(shown):
        y, colour = TOP + ROW * (i + 0.5), "c0" if i == 0 else "c1"
        parts.append(text("tick", LABELS - 10, y + 3.5, label, "end"))
        points = f"{x(found.low):.1f},{y:.1f} {x(found.high):.1f},{y:.1f}"
        parts.append(f'<polyline class="line {colour}" points="{points}"/>')
        for value in found.seeds:
            parts.append(dot(f"dot faint {colour}", x(value), y, 3.0))
        parts.append(dot(f"dot {colour}", x(found.value), y, 4.5))
    spoken = ", ".join(f"{label} {found.value:.3f}" for label, found in shown)
    name = f"{MEASURES[measure]} with 90 % intervals: {spoken}"
    return drawing(parts, name, WIDTH, height)


def _curves(outcome: Outcome) -> tuple[Markup, list[tuple[str, str]]]:
    lines, legend = [], []
    for (label, values), colour in zip(outcome.curves.items(), COLOURS, strict=False):
        steps = [float(s) for s in range(values.shape[1])]
        mean = thinned(Series(label, steps, np.mean(values, axis=0).tolist()))
        lines.append(Line(colour, smoothed(mean), mean))
        legend.append((colour, label))
    name = MEASURES[outcome.claim.figure]
    label = f"{name} over steps, mean over seeds: {', '.join(outcome.curves)}"
    chart = line_chart(lines, label=label, from_zero=True, percent=True)
    return chart, legend
