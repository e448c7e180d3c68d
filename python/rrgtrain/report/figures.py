"""Which curves a run has, and each of them as a chart with a legend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from rrgtrain.report import numbers
from rrgtrain.report.names import RULES, phase_name
from rrgtrain.report.series import Series, curve, smoothed, thinned
from rrgtrain.report.svg import line_chart, stacked_chart

Rows = Sequence[Mapping[str, Any]]
VALIDATION = "_val"


@dataclass(frozen=True)
class Figure:
    """`legend` holds (colour class, name, last value); `note` is what a reader must know."""

    title: str
    chart: Markup
    legend: list[tuple[str, str, str]]
    note: str = ""


def training_figures(rows: Rows) -> list[Figure]:
    """Every figure for which something finite was logged, in reading order."""
    phases = list(dict.fromkeys(str(row["phase"]) for row in rows))
    trained = [p for p in phases if not p.endswith(VALIDATION)]
    keys = {p: _keys(rows, p) for p in phases}
    rl = [p for p in trained if "zero_variance" in keys[p]]
    figures = [
        _lines(
            "Cross-entropy",
            _across(rows, [p for p in trained if p not in rl], "loss"),
            from_zero=True,
        ),
        _validation(rows, [p for p in phases if p.endswith(VALIDATION)]),
        _reward(rows, rl, keys),
    ]
    for phase in rl:
        terms = [k for k in keys[phase] if k.startswith("reward/") and k != "reward/total"]
        title = "Reward terms" if len(rl) == 1 else f"Reward terms, {phase_name(phase)}"
        named = [curve(rows, phase, k, k.removeprefix("reward/").replace("_", " ")) for k in terms]
        figures.append(_lines(title, named))
    figures.append(
        _lines(
            "Groups without variance",
            _across(rows, rl, "zero_variance"),
            from_zero=True,
            percent=True,
        )
    )
    figures.append(_lines("KL to the reference", _across(rows, rl, "kl"), from_zero=True))
    figures.append(_clipped(rows, rl, keys))
    figures += [_edits(rows, phase, keys[phase], alone=len(rl) == 1) for phase in rl]
    figures.append(_lines("Entropy", _across(rows, rl, "entropy"), from_zero=True))
    return [figure for figure in figures if figure is not None]


def _keys(rows: Rows, phase: str) -> list[str]:
    found = (k for row in rows if row["phase"] == phase for k in row)
    return [k for k in dict.fromkeys(found) if k not in ("phase", "step", "time")]


def _across(rows: Rows, phases: Sequence[str], key: str) -> list[Series | None]:
    return [curve(rows, phase, key, phase_name(phase)) for phase in phases]


def _reward(rows: Rows, rl: Sequence[str], keys: Mapping[str, list[str]]) -> Figure | None:
    if len(rl) == 1:
        origins = [k for k in keys[rl[0]] if k.startswith("reward_")]
        named = [curve(rows, rl[0], "reward/total", "all members")]
        named += [curve(rows, rl[0], k, k.removeprefix("reward_")) for k in origins]
        # One kind of member only: its curve is the total's.
        return _lines("Reward", named if len(origins) > 1 else named[:1])
    return _lines("Reward", _across(rows, rl, "reward/total"))


def _clipped(rows: Rows, rl: Sequence[str], keys: Mapping[str, list[str]]) -> Figure | None:
    named = []
    for phase in rl:
        for key in (k for k in keys[phase] if "clip" in k):
            side = key.replace("_", " ")
            named.append(
                curve(rows, phase, key, side if len(rl) == 1 else f"{phase_name(phase)}, {side}")
            )
    return _lines("Clipped tokens", named, from_zero=True, percent=True)


def _validation(rows: Rows, phases: Sequence[str]) -> Figure | None:
    """SFT first; every later phase starts from its end, so it is drawn after it."""
    named = _across(rows, phases, "micro_f1")
    start = max(
        (s.x[-1] for s in named if s is not None and s.name == f"sft{VALIDATION}"), default=0.0
    )
    moved = []
    for series in named:
        if series is None:
            continue
        phase = series.name.removesuffix(VALIDATION)
        shift = 0.0 if phase == "sft" else start
        moved.append(replace(series, name=phase_name(phase), x=[x + shift for x in series.x]))
    rule = (start, "RL") if start and len(moved) > 1 else None
    return _lines("Validation micro-F1", list(moved), rule=rule, smooth=False)


def _edits(rows: Rows, phase: str, keys: Sequence[str], *, alone: bool) -> Figure | None:
    steps = {row["step"]: row for row in rows if row["phase"] == phase}
    kinds = [k for k in sorted(keys) if k.startswith("edits/")]
    if not kinds:
        return None
    steps = {
        step: row
        for step, row in steps.items()
        if all(math.isfinite(row.get(key, 0.0)) for key in kinds)
    }
    if not steps:
        return None
    x = [float(step) for step in sorted(steps)]
    layers, legend, colours = [], [], []
    for key in kinds:
        # A kind of edit that did not occur in a step is not in its row.
        counts = [float(steps[step].get(key, 0.0)) for step in sorted(steps)]
        rule = key.removeprefix("edits/")
        name = f"({rule}) {RULES[rule]}" if rule in RULES else rule
        colours.append(f"c{list(RULES).index(rule)}" if rule in RULES else "c5")
        layers.append(smoothed(thinned(Series(name, x, counts))))
        legend.append((colours[-1], name, numbers.count(sum(counts))))
    spoken = ", ".join(f"{name} {total}" for _, name, total in legend)
    return Figure(
        "Edits per step" if alone else f"Edits per step, {phase_name(phase)}",
        stacked_chart(layers, colours, label=f"Edits by rule over steps; in all {spoken}"),
        legend,
    )


def _lines(
    title: str,
    named: Sequence[Series | None],
    *,
    from_zero: bool = False,
    percent: bool = False,
    rule: tuple[float, str] | None = None,
    smooth: bool = True,
) -> Figure | None:
    present = [s for s in named if s is not None]
    drawn = [s for s in present if s.finite()]
    broken = sum(s.broken for s in present)
    note = (
        f"{broken} logged value{'s' if broken > 1 else ''} not finite, left out." if broken else ""
    )
    if not drawn:
        return None
    thin = [thinned(s) for s in drawn]
    strong = [smoothed(s) for s in thin] if smooth else thin
    ends = {s.name: _shown(s.last(), percent) for s in drawn}
    chart = line_chart(
        thin if smooth else [],
        strong,
        label=f"{title} over steps; last values: {', '.join(f'{k} {v}' for k, v in ends.items())}",
        from_zero=from_zero,
        percent=percent,
        rule=rule,
    )
    legend = [(f"c{i}", s.name, ends[s.name]) for i, s in enumerate(drawn)]
    return Figure(title, chart, legend, note)


def _shown(value: float | None, percent: bool) -> str:
    if value is None:
        return numbers.MISSING
    return f"{100 * value:.2g} %" if percent else f"{value:.3g}".replace("-", "−")
