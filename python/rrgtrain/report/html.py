"""Write the report of a run: one self-contained HTML file."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrgclinical import OBSERVATIONS, ClassId, Extractor, build_extractor
from rrgclinical.shown import redacted
from rrgtrain.report import numbers
from rrgtrain.report.facts import FactsRead, read_facts
from rrgtrain.report.figures import training_figures
from rrgtrain.report.heat import HeatScale, heat_scale, heaviest_words, shaded
from rrgtrain.report.marks import Marked, mark_reports
from rrgtrain.report.missing import unrecorded
from rrgtrain.report.names import GROUPS, METRICS, RULES, in_order, metric_name
from rrgtrain.report.page import rendered
from rrgtrain.report.redline import quoted, redline
from rrgtrain.report.rollouts import last_rollouts
from rrgtrain.report.samples import AnySample, EditSample, Sample, WeightSample, png
from rrgtrain.report.summary import Metric, RunSummary
from rrgtrain.state.rundir import RunDir
from rrgtrain.util.files import atomic_write


def write_report(
    run_dir: str | Path | RunDir,
    summary: RunSummary,
    metrics_rows: Sequence[Mapping[str, Any]],
    samples: Sequence[AnySample],
    out: str | Path | None = None,
    *,
    extractor: str | Extractor = "rules",
    tau: float = 0.6,
) -> Path:
    """Writes the report and returns where: `out`, or `report.html` of the run.

    The configuration shown is the run's `config.yaml`, where there is one, and rollouts are those
    of its last recorded step. Sentences are marked by the entities `extractor` finds, matched at
    cosine > `tau`.
    """
    run = run_dir if isinstance(run_dir, RunDir) else RunDir(run_dir)
    studies = [s for s in samples if isinstance(s, Sample)]
    edits = [s for s in samples if isinstance(s, EditSample)]
    weighed = [s for s in samples if isinstance(s, WeightSample)]
    scale = heat_scale(weighed)
    found = build_extractor(extractor) if isinstance(extractor, str) else extractor
    figures = training_figures(metrics_rows)
    page = rendered(
        "rrgtrain.report",
        "report.html.j2",
        summary=summary,
        facts=_facts(summary),
        headline=_headline(summary),
        table=_table(summary),
        findings=_findings(summary),
        phases=_phases(summary),
        figures=[f for f in figures if not f.flat],
        flat=[f.title.lower() for f in figures if f.flat],
        studies=_studies(studies, list(summary.systems), found, tau),
        edits=[_edit(e) for e in edits],
        rollouts=last_rollouts(run.steps),
        weighed=[_weighed(s, scale) for s in weighed],
        heat=scale.legend() if weighed else [],
        unrecorded=unrecorded(metrics_rows, samples),
        rules=RULES,
        config=redacted(run.config.read_text(encoding="utf-8")) if run.config.exists() else "",
    )
    path = Path(out) if out is not None else run.report
    atomic_write(path, page)
    return path


def _facts(summary: RunSummary) -> list[tuple[str, str]]:
    facts = [
        ("Command", redacted(summary.command)),
        ("Finished", summary.finished),
        ("Wall time", numbers.duration(summary.seconds) if summary.seconds is not None else ""),
        ("Commit", summary.commit or ""),
        ("Versions", ", ".join(f"{k} {v}" for k, v in summary.versions.items())),
    ]
    return [(name, text) for name, text in facts if text]


def _headline(summary: RunSummary) -> str:
    """The result in a sentence: micro-F1 of the last system against the one before it."""
    scored = [
        (n, s.metrics["micro_f1"]) for n, s in summary.systems.items() if "micro_f1" in s.metrics
    ]
    if not scored:
        return ""
    if len(scored) == 1:
        name, metric = scored[0]
        return f"{name} reaches a clinical micro-F1 of {numbers.metric_text('micro_f1', metric)}."
    (before, old), (after, new) = scored[-2:]
    return (
        f"Clinical micro-F1 is {numbers.metric_text('micro_f1', new)} with {after}, against "
        f"{numbers.metric_text('micro_f1', old)} with {before}: "
        f"{numbers.change(old, new, METRICS['micro_f1'])}."
    )


@dataclass(frozen=True)
class _Row:
    label: str
    cells: list[tuple[str, str, bool]]
    change: str


def _table(summary: RunSummary) -> list[tuple[str, list[_Row]]]:
    """Rows of metrics by group; a cell is (value, interval, best of the row)."""
    systems = list(summary.systems.values())
    keys = in_order(key for system in systems for key in system.metrics)
    groups: dict[str, list[_Row]] = {group: [] for group in GROUPS}
    for key in keys:
        name = metric_name(key)
        metrics = [system.metrics.get(key) for system in systems]
        best = _best(metrics, name.higher)
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
        groups[name.group].append(_Row(name.label, cells, change))
    return [(group, rows) for group, rows in groups.items() if rows]


def _best(metrics: Sequence[Metric | None], higher: bool | None) -> set[int]:
    values = {i: m.value for i, m in enumerate(metrics) if m is not None and m.value == m.value}
    if higher is None or len(values) < 2 or len(set(values.values())) == 1:
        return set()
    top = max(values.values()) if higher else min(values.values())
    return {i for i, v in values.items() if v == top}


def _findings(summary: RunSummary) -> list[tuple[str, list[tuple[str, float, str]]]]:
    """Per finding, (system, F1 clipped to [0, 1], F1 as text) in the order of the systems."""
    systems = {n: s.per_finding for n, s in summary.systems.items() if s.per_finding}
    named = [f for f in OBSERVATIONS if any(f in s for s in systems.values())]
    named += [f for s in systems.values() for f in s if f not in named]
    rows = []
    for finding in dict.fromkeys(named):
        bars = []
        for name, values in systems.items():
            f1 = values.get(finding)
            length = min(1.0, max(0.0, f1)) if f1 is not None and f1 == f1 else 0.0
            bars.append((name, length, numbers.value(f1)))
        rows.append((finding, bars))
    return rows


def _phases(summary: RunSummary) -> list[tuple[str, str, list[tuple[str, float, str]]]]:
    """Per system with a breakdown: its time and (phase, share, time) of its parts."""
    shown = []
    for name, system in summary.systems.items():
        total = sum(system.phases.values())
        if total > 0:
            parts = [(k, v / total, numbers.duration(v)) for k, v in system.phases.items() if v > 0]
            shown.append((name, numbers.duration(system.seconds or total), parts))
    return shown


def _studies(
    samples: Sequence[Sample], systems: Sequence[str], extractor: Extractor, tau: float
) -> list[dict[str, Any]]:
    pairs = [(s, name) for s in samples for name in s.outputs]
    texts = [s.outputs[name] for s, name in pairs]
    marked = mark_reports(texts, [s.reference for s, _ in pairs], extractor, tau) if pairs else []
    by_study: dict[int, dict[str, Marked]] = {}
    for (sample, name), marks in zip(pairs, marked, strict=True):
        by_study.setdefault(id(sample), {})[name] = marks
    shown = []
    for sample in samples:
        outputs = by_study.get(id(sample), {})
        order = [n for n in systems if n in outputs] + [n for n in outputs if n not in systems]
        shown.append(
            {
                "id": sample.id,
                "indication": sample.indication,
                "reference": sample.reference,
                "images": _images(sample),
                "findings": _labels(sample),
                "outputs": [(name, outputs[name], _facts_read(sample, name)) for name in order],
            }
        )
    return shown


def _facts_read(sample: Sample, system: str) -> FactsRead | None:
    note = (sample.facts or {}).get(system)
    return None if note is None else read_facts(note, sample.labels)


def _weighed(sample: WeightSample, scale: HeatScale) -> dict[str, Any]:
    return {
        **{f.name: getattr(sample, f.name) for f in dataclasses.fields(sample)},
        "pieces": shaded(sample.pieces, scale),
        "heaviest": heaviest_words(sample.pieces),
        "reward": numbers.value(sample.reward),
        "advantage": numbers.value(sample.advantage),
    }


def _images(sample: Sample) -> list[tuple[str, str, str]]:
    """(data URI, alternative text, caption) of each image."""
    shown = []
    views = [*sample.views, *[""] * len(sample.images)]
    for i, (image, view) in enumerate(zip(sample.images, views, strict=False), start=1):
        uri = "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")
        alt = f"Radiograph {i} of {len(sample.images)} of study {sample.id}"
        shown.append((uri, f"{alt}, {view}" if view else alt, view))
    return shown


def _labels(sample: Sample) -> list[str]:
    if sample.labels is None:
        return []
    words = {ClassId.POSITIVE: "", ClassId.UNCERTAIN: " (uncertain)"}
    named = zip(OBSERVATIONS, sample.labels, strict=True)
    return [name + words[ClassId(label)] for name, label in named if ClassId(label) in words]


def _edit(sample: EditSample) -> dict[str, Any]:
    known = sample.reward_before is not None and sample.reward_after is not None
    change = (
        numbers.change(Metric(sample.reward_before), Metric(sample.reward_after), METRICS["reward"])  # type: ignore[arg-type]
        if known
        else ""
    )
    return {
        **{f.name: getattr(sample, f.name) for f in dataclasses.fields(sample)},
        "pieces": redline(sample.before, sample.after, sample.steps),
        "source": quoted(sample.reference, [added for _, _, added in sample.steps]),
        "used": [
            (rule, RULES.get(rule, rule)) for rule in dict.fromkeys(s[0] for s in sample.steps)
        ],
        "reward": (numbers.value(sample.reward_before), numbers.value(sample.reward_after), change),
        "rewarded": known,
    }
