"""The table at the end of a run: one row a system, clinical metrics first."""

from __future__ import annotations

from rrgclinical.common.shown import one_line
from rrgclinical.common.table import aligned
from rrgclinical.metrics.registry import METRICS, in_order
from rrgreport import numbers
from rrgreport.names import RULES
from rrgreport.summary import RunSummary, System

_COLUMNS = {key: METRICS[key].column for key in in_order(METRICS) if METRICS[key].column}
_ALWAYS = ("micro_f1", "macro_f1", "reward", "zero_variance")


def summary_cells(summary: RunSummary) -> list[list[str]]:
    """Header and rows as text; optional columns appear when a system fills them."""
    systems = summary.systems.values()
    keys = [k for k in _COLUMNS if k in _ALWAYS or any(k in s.metrics for s in systems)]
    edits = {kind for system in systems for kind in system.edits}
    # An algorithm of one's own counts what it likes.
    of_rules = "edits by rule" if edits <= {*RULES, "unchanged"} else "edits"
    header = ["system", *(_COLUMNS[k] for k in keys), *([of_rules] if edits else []), "time"]
    rows = [header]
    for name, system in summary.systems.items():
        cells = [numbers.metric_text(key, system.metrics.get(key)) for key in keys]
        if edits:
            cells.append(_edits(system))
        rows.append([one_line(name), *cells, numbers.duration(system.seconds)])
    return rows


def print_summary(summary: RunSummary) -> None:
    """Print the table as aligned text."""
    lines = [one_line(summary.title), "", *aligned(summary_cells(summary))]
    for block in (rule_lines(summary), phase_lines(summary), summary.notes):
        lines += ["", *block] if block else []
    print("\n".join(lines), flush=True)


def rule_lines(summary: RunSummary) -> list[str]:
    """Name the rules that edits are counted by; no line without such edits."""
    made = {kind for system in summary.systems.values() for kind in system.edits}
    named = [f"{letter} {name}" for letter, name in RULES.items() if letter in made]
    return [f"Edits: {', '.join(named)}."] if named else []


def phase_lines(summary: RunSummary) -> list[str]:
    """Write where each system's time went; no line without times."""
    return [
        f"{name}: " + ", ".join(f"{phase} {numbers.duration(s)}" for phase, s in phases.items())
        for name, phases in ((n, s.phases) for n, s in summary.systems.items())
        if phases
    ]


def _edits(system: System) -> str:
    parts = [f"{rule} {numbers.count(n)}" for rule, n in sorted(system.edits.items()) if n]
    return ", ".join(parts) or numbers.MISSING
