"""Draw what edits do as SVG: arms, curves over steps, gains by rule.

From results alone, as the report does. Each file stands alone, with its colours in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape

from experiments.iu_evidence.judge import POPULATIONS, measured, pooled
from experiments.iu_evidence.mechanism import PLACES
from experiments.iu_evidence.report import Results, gains_of, shares_of
from experiments.jobs.results import Result
from experiments.measures import Ratios
from rrgclinical.common.files import atomic_write
from rrgreport import numbers
from rrgreport.series import Series
from rrgreport.svg import Line, dot, drawing, line_chart, segment, text, ticks

PANEL, HEIGHT, LABELS, ROW, TOP = 360.0, 214.0, 150.0, 24.0, 26.0
CURVES = {
    "reward": "reward of validation reports",
    "f1_13": "F1 over 13 findings of validation reports",
    "entropy": "entropy of sampled reports, nats a token",
    "report_tokens": "tokens of a sampled report",
}
COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5")
STYLE = (
    "text{font:11px Helvetica,Arial,sans-serif;fill:#333}.title{font-weight:bold;font-size:12px}"
    ".grid{stroke:#ddd}.zero{stroke:#888}.line{fill:none;stroke-width:1.8}.faint{opacity:.35}"
    + "".join(
        f".{name}{{stroke:{colour}}}circle.{name}{{fill:{colour};stroke:none}}"
        for name, colour in zip(
            COLOURS, ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#333333"), strict=True
        )
    )
)
"""Colours that colour-blind readers tell apart (Okabe and Ito, 2008)."""

Row = tuple[float, Sequence[float]]
"""The value of a row, and those of its folds."""
Panel = tuple[str, Markup, float]
"""A title, a drawing PANEL wide, and its height."""


def draw(results: Results, directory: Path) -> list[Path]:
    """Write arms.svg, steps.svg and rules.svg beneath `directory`; returns their paths.

    `results` are those of `edits` and `rl`: arms with curves and gains. Raises ValueError where
    no arm edits.
    """
    # an arm and its follow-up are one training
    trainings = {n: row for n, row in results.items() if f"{n}_by_reward" not in results}
    drawn = {
        "arms": arms_figure(results),
        "steps": steps_figure(trainings),
        "rules": rules_figure(trainings),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn.items():
        atomic_write(directory / f"evidence-{name}.svg", f"{figure}\n")
    return [directory / f"evidence-{name}.svg" for name in drawn]


def arms_figure(results: Results) -> Markup:
    """Draw F1 over 13 findings of each arm and population, faintly that of each fold."""
    panels = []
    for population in POPULATIONS:
        rows = {
            name: _value_and_folds([measured(r, "f1_13", population) for r in row])
            for name, row in results.items()
        }
        panels.append(_rows(f"F1 over 13 findings, {population} studies", rows))
    return _beside(panels, TOP + ROW * len(results) + 30, "F1 over 13 findings of each arm")


def steps_figure(results: Results) -> Markup:
    """Draw validations, entropy and length over steps, mean over folds, of arms that sample."""
    sampled = {n: row for n, row in results.items() if "validations" in row[0].facts}
    if len(sampled) > len(COLOURS):
        raise ValueError(f"{len(sampled)} arms; wanted at most {len(COLOURS)}, a colour each")
    colour = dict(zip(sampled, COLOURS, strict=False))
    panels = []
    for key, title in CURVES.items():
        lines = [Line(colour[n], _mean_series(n, key, row)) for n, row in sampled.items()]
        panels.append((title, line_chart(lines, label=f"{title} over steps"), HEIGHT))
    high = 2 * (TOP + HEIGHT) + 24
    return _beside(panels, high, "Validations, entropy and length over steps", colour)


def _mean_series(name: str, key: str, results: Sequence[Result]) -> Series:
    source = "validations" if key in results[0].facts["validations"] else "curves"
    mean = np.mean([result.facts[source][key] for result in results], axis=0).tolist()
    if source == "validations":
        return Series(name, [float(step) for step in results[0].facts[source]["step"]], mean)
    return Series(name, [float(step) for step in range(1, len(mean) + 1)], mean)


def rules_figure(results: Results) -> Markup:
    """Draw each arm's mean gain of an edit by rules, and its gradient by place."""
    edits = {name: row for name, row in results.items() if shares_of(row)}
    if not edits:
        raise ValueError(f"arms {', '.join(results)}; wanted one that edits")
    gains: dict[str, Row] = {
        f"{name} {rules} ({count:,})" if len(edits) > 1 else f"{rules} ({count:,})": (gain, [])
        for name, row in edits.items()
        for rules, gain, count in gains_of(row)
    }
    shares: dict[str, Row] = {}
    for name, row in edits.items():
        parts = shares_of(row)
        for place in PLACES:
            each = [part[place] for part in parts]
            label = f"{name} {place}" if len(edits) > 1 else place
            shares[label] = (sum(each) / len(each), each)
    panels = [_rows("mean gain of an edit, by rules (edits)", gains)]
    panels.append(_rows("share of the gradient, by place to the change", shares))
    high = TOP + ROW * max(len(gains), len(shares)) + 30
    return _beside(panels, high, "What edits gain, and where their gradient lies")


def _value_and_folds(parts: Sequence[Ratios]) -> Row:
    return float(pooled(parts)[0]), [float(part.value()[0]) for part in parts]


def _rows(title: str, rows: Mapping[str, Row]) -> Panel:
    """A line a row: its value, and faintly that of each fold."""
    ends = [end for value, folds in rows.values() for end in (value, *folds)]
    marks = ticks(min(0.0, *ends), max(ends))
    foot = ROW * len(rows)

    def x(value: float) -> float:
        return LABELS + (value - marks[0]) / (marks[-1] - marks[0]) * (PANEL - LABELS - 20)

    parts = []
    for mark in marks:
        parts.append(segment("zero" if mark == 0 else "grid", x(mark), 0, x(mark), foot))
        parts.append(text("tick", x(mark), foot + 16, numbers.tick(mark), "middle"))
    for index, (label, (value, folds)) in enumerate(rows.items()):
        y = ROW * (index + 0.5)
        parts.append(text("tick", LABELS - 10, y + 4, label, "end"))
        parts += [dot("faint c0", x(fold), y, 3.0) for fold in folds]
        parts.append(dot("c1", x(value), y, 4.5))
    spoken = ", ".join(f"{label} {value:.3f}" for label, (value, _) in rows.items())
    return title, drawing(parts, f"{title}: {spoken}", PANEL, foot + 24), foot + 24


def _beside(
    panels: Sequence[Panel], high: float, label: str, legend: Mapping[str, str] | None = None
) -> Markup:
    """Panels two beside each other, each under its title, a legend beneath: one file.

    legend: colour classes by name.
    """
    wide = 2 * PANEL
    parts = [f'<rect width="{wide:g}" height="{high:g}" fill="#fff"/>']
    for index, (title, panel, tall) in enumerate(panels):
        left, top = PANEL * (index % 2), (TOP + HEIGHT) * (index // 2)
        parts.append(text("title", left + 12, top + 16, title, "start"))
        # without sizes a drawing inside a drawing takes all the room
        placed = f'<svg x="{left:g}" y="{top + TOP:g}" width="{PANEL:g}" height="{tall:g}" '
        parts.append(str(panel).replace("<svg ", placed, 1))
    for index, (name, colour) in enumerate((legend or {}).items()):
        at = 20 + (wide - 40) / len(legend or {}) * index
        parts.append(dot(colour, at, high - 10, 4.0))
        parts.append(text("tick", at + 9, high - 6, name, "start"))
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img" '
        f'aria-label="{escape(label)}"><style>{STYLE}</style>{"".join(parts)}</svg>'
    )
