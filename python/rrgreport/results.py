"""Lay out a summary: table rows, bars of findings, where it came from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rrgclinical import OBSERVATIONS
from rrgclinical.common.shown import redacted
from rrgclinical.metrics.registry import CLINICAL, HEADLINE, REWARD, TEXT, in_order, metric_of
from rrgreport import numbers
from rrgreport.names import changes_labels, changes_reward
from rrgreport.summary import Metric, RunSummary, System

HEADINGS = {CLINICAL: "Clinical", REWARD: "Reward and training", TEXT: "Text overlap"}


def facts(summary: RunSummary) -> list[tuple[str, str]]:
    """List command, time, commit and versions, those that are known."""
    present = [
        ("Command", redacted(summary.command)),
        ("Finished", summary.finished),
        ("Wall time", numbers.duration(summary.seconds) if summary.seconds is not None else ""),
        ("Commit", summary.commit or ""),
        ("Versions", ", ".join(f"{k} {v}" for k, v in summary.versions.items())),
    ]
    return [(name, text) for name, text in present if text]


@dataclass(frozen=True)
class Row:
    """A metric, its cells (value, interval, best of the row), and the last change."""

    label: str
    cells: list[tuple[str, str, bool]]
    change: str


@dataclass(frozen=True)
class HeadlineScores:
    """Hold the clinical micro-F1 of each system, and what a sentence says of it.

    It is over the 13 findings where that is known, with the one over 14 labels behind it: No
    Finding, which a report that is normal whatever it is given gets right, is among those.
    """

    key: str
    over: str
    metrics: dict[str, Metric]
    texts: dict[str, str]


def headline_scores(systems: Mapping[str, System]) -> HeadlineScores:
    """Find the micro-F1 that a page begins with; empty without any."""
    findings, every = HEADLINE
    key = findings if any(findings in s.metrics for s in systems.values()) else every
    metrics = {n: s.metrics[key] for n, s in systems.items() if key in s.metrics}
    texts = {name: numbers.metric_text(key, metric) for name, metric in metrics.items()}
    if key == every:
        return HeadlineScores(key, "", metrics, texts)
    for name in metrics:
        beside = systems[name].metrics.get(every)
        texts[name] += f" [{numbers.value(beside.value if beside else None)}]"
    return HeadlineScores(key, " over 13 findings [with No Finding, over 14]", metrics, texts)


def table_rows(summary: RunSummary, differing: Collection[str] = ()) -> list[tuple[str, list[Row]]]:
    """Rows of metrics by group; a cell is (value, interval, best of the row).

    None is the best of a row whose values depend on one of the settings `differing`.
    """
    labels = any(map(changes_labels, differing))
    reward = labels or any(map(changes_reward, differing))
    systems = list(summary.systems.values())
    keys = in_order(key for system in systems for key in system.metrics)
    groups: dict[str, list[Row]] = {kind: [] for kind in HEADINGS}
    for key in keys:
        name = metric_of(key)
        metrics = [system.metrics.get(key) for system in systems]
        uneven = reward if key.partition("/")[0] == "reward" else labels
        best = set() if uneven else _best(metrics, name.higher)
        cells = [
            (
                numbers.value(None if m is None else m.value, name),
                # Breaks before the upper end only, on a narrow screen.
                "" if m is None else numbers.interval(m, name).replace(" to", "\N{NBSP}to"),
                i in best,
            )
            for i, m in enumerate(metrics)
        ]
        old, new = metrics[-2:] if len(metrics) > 1 else (None, None)
        change = numbers.change(old, new, name) if old is not None and new is not None else ""
        groups[name.kind].append(Row(name.title, cells, change))
    return [(HEADINGS[kind], rows) for kind, rows in groups.items() if rows]


def _best(metrics: Sequence[Metric | None], higher: bool | None) -> set[int]:
    values = {i: m.value for i, m in enumerate(metrics) if m is not None and m.value == m.value}
    if higher is None or len(values) < 2 or len(set(values.values())) == 1:
        return set()
    top = max(values.values()) if higher else min(values.values())
    return {i for i, v in values.items() if v == top}


def finding_bars(summary: RunSummary) -> list[tuple[str, list[tuple[str, float, str]]]]:
    """List (system, F1 in [0, 1], F1 as text) of each finding.

    "–" is the F1 of a finding that no study has."""
    systems = {n: s.per_finding for n, s in summary.systems.items() if s.per_finding}
    named = [f for f in OBSERVATIONS if any(f in s for s in systems.values())]
    named += [f for s in systems.values() for f in s if f not in named]
    rows = []
    for finding in dict.fromkeys(named):
        counts = {s.positives.get(finding) for s in summary.systems.values()} - {None}
        bars = []
        for name, values in systems.items():
            f1 = None if counts == {0} else values.get(finding)
            length = min(1.0, max(0.0, f1)) if f1 is not None and f1 == f1 else 0.0
            bars.append((name, length, numbers.value(f1)))
        count = f" ({counts.pop()})" if len(counts) == 1 else ""
        rows.append((f"{finding}{count}", bars))
    return rows
