"""Write the report of a run: one self-contained HTML file."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole_text
from rrgclinical.common.shown import hidden, redacted
from rrgclinical.metrics.registry import METRICS, metric_of
from rrgclinical.scorecard import first_rows, foot, headline, interval_kind, read_card, tables
from rrgreport import numbers
from rrgreport.cases import case_list, kept_cases
from rrgreport.figures import PHASE_COLOURS, training_figures
from rrgreport.names import RULES
from rrgreport.page import rendered, write_out
from rrgreport.redline import quoted, redline
from rrgreport.results import facts, finding_bars, headline_scores, table_rows
from rrgreport.run_files import RunFiles, read_metrics
from rrgreport.samples import AnySample, EditSample, Sample, WeightSample, read_samples
from rrgreport.series import with_changes
from rrgreport.summary import Metric, RunSummary


def write_report(
    run_dir: str | Path | RunFiles,
    summary: RunSummary,
    metrics_rows: Sequence[Mapping[str, Any]],
    samples: Sequence[AnySample],
    out: str | Path | None = None,
) -> Path:
    """Writes the report and returns where: `out`, or `report.html` of the run.

    Its scorecard (`metrics.json`) comes first. The configuration shown is the run's `config.yaml`,
    where there is one.
    """
    run = run_dir if isinstance(run_dir, RunFiles) else RunFiles(run_dir)
    studies = [s for s in samples if isinstance(s, Sample)]
    edits = [s for s in samples if isinstance(s, EditSample)]
    weighed = [s for s in samples if isinstance(s, WeightSample)]
    scale = heat_scale(weighed)
    cases, labeller = kept_cases(run, studies, summary.systems)
    card = read_card(run.card) if os.path.lexists(run.card) else None
    # files that were scored have no more to show than their scorecard
    trained = card is None or bool(metrics_rows) or os.path.lexists(run.config)
    figures = training_figures(with_changes(metrics_rows, summary.changes))
    page = rendered(
        "report.html.j2",
        summary=summary,
        facts=facts(summary),
        headline=headline(card) if card else _headline(summary),
        first=first_rows(card) if card else [],
        intervals=interval_kind(card) if card else "",
        tables=list(tables(card)) if card else [],
        foot=[line for line in foot(card) if line not in summary.notes] if card else [],
        trained=trained,
        table=table_rows(summary, [change["key"] for change in summary.changes]) if trained else [],
        findings=finding_bars(summary),
        colours=PHASE_COLOURS,
        phases=_phases(summary),
        figures=[f for f in figures if not f.flat],
        flat=[f.title.lower() for f in figures if f.flat],
        cases=case_list(cases, list(summary.systems), labeller=labeller),
        edits=[_edit(e) for e in edits],
        weighed=[_weighed(s, scale) for s in weighed],
        heat=scale.legend() if weighed else [],
        rules=RULES,
        config=redacted(_config(run.config)) if os.path.lexists(run.config) else "",
    )
    path = Path(out) if out is not None else run.report
    write_out(path, hidden(page))
    return path


def draw(run: RunFiles, summary: RunSummary, out: Path | None = None) -> Path:
    """Write report.html, or `out`, from what a run, or an evaluation of files, has left."""
    trained = run.config.exists() or run.metrics.exists()
    rows = read_metrics(run.metrics) if trained else []
    return write_report(run, summary, rows, read_samples(run.samples), out)


def _config(path: Path) -> str:
    try:
        return read_whole_text(path)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def _headline(summary: RunSummary) -> str:
    """The result in a sentence: micro-F1 of the last system against the one before it."""
    scores = headline_scores(summary.systems)
    if not scores.metrics:
        return ""
    *earlier, after = scores.metrics
    if not earlier:
        return f"{after} reaches a clinical micro-F1{scores.over} of {scores.texts[after]}."
    before = earlier[-1]
    change = numbers.change(scores.metrics[before], scores.metrics[after], metric_of(scores.key))
    return (
        f"Clinical micro-F1{scores.over} is {scores.texts[after]} with {after}, against "
        f"{scores.texts[before]} with {before}: a difference of {change}."
    )


def _phases(summary: RunSummary) -> list[tuple[str, str, list[tuple[str, float, str]]]]:
    """Per system with a breakdown: its time and (phase, share, time) of its parts."""
    shown = []
    for name, system in summary.systems.items():
        total = sum(system.phases.values())
        if total > 0:
            parts = [(k, v / total, numbers.duration(v)) for k, v in system.phases.items() if v > 0]
            shown.append((name, numbers.duration(system.seconds or total), parts))
    return shown


def _weighed(sample: WeightSample, scale: HeatScale) -> dict[str, Any]:
    return {
        **vars(sample),
        "pieces": shaded(sample.pieces, scale),
        "heaviest": heaviest_words(sample.pieces),
        "reward": numbers.value(sample.reward),
        "advantage": numbers.value(sample.advantage),
    }


def _edit(sample: EditSample) -> dict[str, Any]:
    rewarded = sample.reward_before is not None and sample.reward_after is not None
    change = (
        numbers.change(Metric(sample.reward_before), Metric(sample.reward_after), METRICS["reward"])  # type: ignore[arg-type]
        if rewarded
        else ""
    )
    return {
        **vars(sample),
        "pieces": redline(sample.before, sample.after, sample.steps),
        "source": quoted(sample.reference, [added for _, _, added in sample.steps]),
        "used": [
            (rule, RULES.get(rule, rule)) for rule in dict.fromkeys(s[0] for s in sample.steps)
        ],
        "reward": (numbers.value(sample.reward_before), numbers.value(sample.reward_after), change),
        "rewarded": rewarded,
    }


STEPS = 5
"""Swatches of the legend."""


@dataclass(frozen=True)
class HeatScale:
    """From weight to shade: `low` is blank, `high` the strongest."""

    low: float
    high: float

    def shade(self, weight: float) -> float:
        """0 to 1; 0 everywhere where no weight differs."""
        if self.high <= self.low:
            return 0.0
        return min(1.0, max(0.0, (weight - self.low) / (self.high - self.low)))

    def legend(self) -> list[tuple[str, str]]:
        """(shade, weight) of the swatches, lightest first."""
        shades = [i / (STEPS - 1) for i in range(STEPS)]
        return [(f"{s:.3f}", f"{self.low + s * (self.high - self.low):.2f}") for s in shades]


def heat_scale(samples: Sequence[WeightSample]) -> HeatScale:
    """Make one scale for all samples, to compare them; 1 is blank (DiTPO, eq. 6)."""
    weights = [weight for sample in samples for _, weight in sample.pieces]
    return HeatScale(min([1.0, *weights]), max([1.0, *weights]))


def shaded(pieces: Sequence[tuple[str, float]], scale: HeatScale) -> list[tuple[str, str, str]]:
    """(text, shade, what a pointer over it is told) of each piece."""
    return [(text, f"{scale.shade(weight):.3f}", f"weight {weight:.3f}") for text, weight in pieces]


def heaviest_words(pieces: Sequence[tuple[str, float]], count: int = 6) -> list[tuple[str, str]]:
    """The words of the heaviest tokens, each once, with the weight of its heaviest token.

    For who cannot see the shades. A token that is a part of a word stands for the whole of it.
    """
    words: list[tuple[str, float]] = []
    for text, weight in pieces:
        head = text[:1]
        if words and head and not head.isspace() and not words[-1][0][-1:].isspace():
            before, heavier = words.pop()
            words.append((before + text, max(heavier, weight)))
        else:
            words.append((text, weight))
    best: dict[str, float] = {}
    for text, weight in words:
        word = text.strip().strip(".,;:")
        if word:
            best[word] = max(best.get(word, weight), weight)
    ranked = sorted(best.items(), key=lambda item: -item[1])[:count]
    return [(word, f"{weight:.2f}") for word, weight in ranked]
