"""Draw the curves of a run as charts with legends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from rrgclinical.severity import AXES
from rrgreport import numbers
from rrgreport.names import RULES, phase_name
from rrgreport.series import CHANGED, Series, apart, curve, smoothed, thinned
from rrgreport.svg import Line, line_chart, stacked_chart

Rows = Sequence[Mapping[str, Any]]
Named = Sequence[tuple[str, Series | None]]
VALIDATION = "_val"
_VALIDATED = "Validation"


# The first phase is grey, as what the others are compared with.
PHASE_COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5")
# Parts of a phase, and runs, are equals.
PART_COLOURS = ("c1", "c2", "c3", "c4", "c0", "c5")


@dataclass(frozen=True)
class Figure:
    """`legend` holds (colour class, name, last value); `note` is what a reader must know.

    `flat` figures are zero everywhere: worth a word, not a drawing.
    """

    title: str
    chart: Markup
    legend: list[tuple[str, str, str]]
    note: str = ""
    flat: bool = False


def training_figures(rows: Rows) -> list[Figure]:
    """Every figure for which something finite was logged, in reading order."""
    phases = list(dict.fromkeys(str(row["phase"]) for row in rows))
    trained = [p for p in phases if not p.endswith(VALIDATION)]
    keys = {p: _keys(rows, p) for p in phases}
    colour = {p: PHASE_COLOURS[i % len(PHASE_COLOURS)] for i, p in enumerate(trained)}
    rl = [p for p in trained if "zero_variance" in keys[p]]
    tuned = [p for p in trained if p not in rl]

    def across(title: str, chosen: list[str], key: str, **style: Any) -> Figure | None:
        named = [(colour[p], curve(rows, p, key, phase_name(p))) for p in chosen]
        return _lines(title, named, **style)

    figures = [
        across("Cross-entropy", tuned, "loss", from_zero=True),
        _validation(rows, [p for p in trained if f"{p}{VALIDATION}" in phases], colour),
        _reward(rows, rl[0], keys[rl[0]]) if len(rl) == 1 else across("Reward", rl, "reward/total"),
    ]
    for phase in rl:
        terms = [k for k in keys[phase] if k.startswith("reward/") and k != "reward/total"]
        parts = {k: k.removeprefix("reward/") for k in terms}
        figures.append(_lines(_of("Reward terms", phase, rl), _parts(rows, phase, parts)))
    figures += [
        across("Groups without variance", rl, "zero_variance", from_zero=True, percent=True),
        across(
            "Share of reports with zero reward", rl, "zero_reward", from_zero=True, percent=True
        ),
        across("Share of groups with zero reward", rl, "zero_groups", from_zero=True, percent=True),
        across("KL to the reference", rl, "kl", from_zero=True),
    ]
    figures += [_oracle(rows, p, keys[p], _of("The oracle's part", p, rl)) for p in rl]
    title = "Gradient of the oracle over that of the rest"
    figures.append(across(title, rl, "oracle/gradient_ratio", from_zero=True))
    figures += [_weights(rows, p, keys[p], _of("Token weights", p, rl)) for p in rl]
    for phase in rl:
        sides = {k: k for k in keys[phase] if "clip" in k}
        named = _parts(rows, phase, sides)
        figures.append(
            _lines(_of("Clipped tokens", phase, rl), named, from_zero=True, percent=True)
        )
    figures += [_edits(rows, phase, keys[phase], _of("Edits per step", phase, rl)) for phase in rl]
    figures.append(across("Entropy", rl, "entropy", from_zero=True))
    figures += [figure for phase in rl for figure in _axes(rows, phase, rl)]
    return [figure for figure in figures if figure is not None]


FINE_TUNING, REINFORCEMENT = "fine-tuning", "reinforcement"
_BOTH = (FINE_TUNING, REINFORCEMENT)
# (title, metric, stages, style of the chart) of what several runs are compared by
_COMPARED: tuple[tuple[str, str, tuple[str, ...], dict[str, Any]], ...] = (
    ("Cross-entropy", "loss", (FINE_TUNING,), {"from_zero": True}),
    (f"{_VALIDATED} micro-F1", "micro_f1", _BOTH, {"smooth": False}),
    (f"{_VALIDATED} micro-F1, 13 findings", "micro_f1_13", _BOTH, {"smooth": False}),
    (f"{_VALIDATED} reward", "reward", _BOTH, {"smooth": False}),
    ("Reward", "reward/total", (REINFORCEMENT,), {}),
    ("Groups without variance", "zero_variance", (REINFORCEMENT,), {"percent": True}),
    ("KL to the reference", "kl", (REINFORCEMENT,), {"from_zero": True}),
    ("Entropy", "entropy", (REINFORCEMENT,), {"from_zero": True}),
)


def compared_figures(runs: Mapping[str, Rows]) -> list[Figure]:
    """Lay curves of several runs over each other; a chart a metric and stage.

    Fine-tuning and reinforcement learning have charts of their own, as their steps do. A run whose
    curve is nowhere finite is left out of the chart.
    """
    figures = []
    for title, key, stages, style in _COMPARED:
        suffix = VALIDATION if title.startswith(_VALIDATED) else ""
        for stage in stages:
            named = []
            for index, (run, rows) in enumerate(runs.items()):
                phases = _trained(rows, stage)
                for phase in phases:
                    name = run if len(phases) == 1 else f"{run}, {phase_name(phase)}"
                    colour = PART_COLOURS[index % len(PART_COLOURS)]
                    named.append((colour, curve(rows, f"{phase}{suffix}", key, name)))
            figure = _lines(title if len(stages) == 1 else f"{title}, {stage}", named, **style)
            figures += [figure] if figure is not None and not figure.flat else []
    return figures


def _trained(rows: Rows, stage: str) -> list[str]:
    phases = [str(row["phase"]) for row in rows]
    rl = {str(row["phase"]) for row in rows if "zero_variance" in row}
    named = [p for p in dict.fromkeys(phases) if not p.endswith(VALIDATION)]
    return [p for p in named if (p in rl) == (stage == REINFORCEMENT)]


def _keys(rows: Rows, phase: str) -> list[str]:
    keys = (k for row in rows if row["phase"] == phase for k in row)
    return [k for k in dict.fromkeys(keys) if k not in ("phase", "step", "time", CHANGED)]


def _of(title: str, phase: str, phases: Sequence[str]) -> str:
    return title if len(phases) == 1 else f"{title}, {phase_name(phase)}"


def _parts(rows: Rows, phase: str, parts: Mapping[str, str]) -> Named:
    """Curves of metrics of one phase by key, each with a printed name."""
    readable = [(key, name.replace("_", " ").replace("f1", "F1")) for key, name in parts.items()]
    return [
        (PART_COLOURS[i % len(PART_COLOURS)], curve(rows, phase, key, name))
        for i, (key, name) in enumerate(readable)
    ]


def _reward(rows: Rows, phase: str, keys: Sequence[str]) -> Figure | None:
    # With a slash it is another thing: `reward_seconds/...` are timings.
    origins = [k for k in keys if k.startswith("reward_") and "/" not in k]
    # With one kind of member only, its curve is the total's.
    shown = {k: k.removeprefix("reward_") for k in origins} if len(origins) > 1 else {}
    return _lines("Reward", _parts(rows, phase, {"reward/total": "all members", **shown}))


def _validation(rows: Rows, phases: Sequence[str], colour: Mapping[str, str]) -> Figure | None:
    """SFT first; every other phase starts from its end, so it is drawn after it."""
    curves = {p: curve(rows, f"{p}{VALIDATION}", "micro_f1", phase_name(p)) for p in phases}
    sft = curves.get("sft")
    start = sft.x[-1] if sft is not None else 0.0
    named = [
        (colour[p], s if p == "sft" or s is None else replace(s, x=[x + start for x in s.x]))
        for p, s in curves.items()
    ]
    rule = (start, "RL") if sft is not None and len(named) > 1 else None
    return _lines("Validation micro-F1", named, rule=rule, smooth=False)


def _oracle(rows: Rows, phase: str, keys: Sequence[str], title: str) -> Figure | None:
    """Zero-reward rate and mixing weight, as OraPO's figure 2 shows them over steps."""
    named = {
        "oracle/zero_rate": "zero-reward rate of a group",
        "oracle/weight": "mixing weight of the preference",
    }
    shown = {key: name for key, name in named.items() if key in keys}
    return _lines(title, _parts(rows, phase, shown), from_zero=True, percent=True)


def _weights(rows: Rows, phase: str, keys: Sequence[str], title: str) -> Figure | None:
    shown = {k: k.removeprefix("token_weight/") for k in keys if k.startswith("token_weight/")}
    shown.pop("token_weight/above_1", None)  # a share, and no weight
    return _lines(title, _parts(rows, phase, shown))


def _axes(rows: Rows, phase: str, phases: Sequence[str]) -> list[Figure | None]:
    """F1 of single observations in validations, and axes, by whether they should rise."""
    logged = set(_keys(rows, f"{phase}{VALIDATION}"))
    kinds = (("more is better", 1), ("less is better", -1), ("1 is the references'", 0))
    classes = {key: key.removeprefix("f1/") for key in sorted(logged) if key.startswith("f1/")}
    title = _of("Validation F1 of each observation", phase, phases)
    curves = _parts(rows, f"{phase}{VALIDATION}", classes)
    figures = [_lines(title, curves, from_zero=True, smooth=False)]
    for direction, rises in kinds:
        named = {f"axis/{key}": text for key, (sign, text) in AXES.items() if sign == rises}
        shown = {key: text for key, text in named.items() if key in logged}
        title = _of(f"Validation axes, {direction}", phase, phases)
        curves = _parts(rows, f"{phase}{VALIDATION}", shown)
        figures.append(_lines(title, curves, from_zero=True, smooth=False))
    return figures


def _edits(rows: Rows, phase: str, keys: Sequence[str], title: str) -> Figure | None:
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
        title,
        stacked_chart(layers, colours, label=f"Edits by rule over steps; in all {spoken}"),
        legend,
    )


def _lines(
    title: str,
    named: Named,
    *,
    from_zero: bool = False,
    percent: bool = False,
    rule: tuple[float, str] | None = None,
    smooth: bool = True,
) -> Figure | None:
    present = [(colour, s) for colour, s in named if s is not None]
    drawn = [(colour, s) for colour, s in present if s.finite()]
    broken = sum(s.broken for _, s in present)
    note = (
        f"{broken} logged value{'s' if broken > 1 else ''} not finite, left out." if broken else ""
    )
    if not drawn:
        return None
    if any(series.cuts for _, series in drawn):
        note = f"{note} What it depends on was changed in the run: there is a gap.".strip()
    lines = []
    for colour, series in drawn:
        thin = apart(series, thinned)
        strong = apart(series, lambda part: smoothed(thinned(part)))
        lines.append(Line(colour, strong, thin) if smooth else Line(colour, thin))
    legend = [(colour, s.name, _shown(s.last(), percent)) for colour, s in drawn]
    chart = line_chart(
        lines,
        label=f"{title} over steps; last values: {', '.join(f'{n} {v}' for _, n, v in legend)}",
        from_zero=from_zero,
        percent=percent,
        rule=rule,
    )
    flat = not broken and all(v == 0 for _, s in drawn for v in s.y)
    return Figure(title, chart, legend, note, flat)


def _shown(value: float | None, percent: bool) -> str:
    if value is None:
        return numbers.MISSING
    # a tick is "100", where two digits of 100 are "1e+02"
    return (
        f"{numbers.tick(float(f'{100 * value:.2g}'))} %"
        if percent
        else f"{value:.3g}".replace("-", "−")
    )
