"""Write what a run leaves: table, summary, samples and the HTML report."""

from __future__ import annotations

import datetime
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rrgclinical.common.files import atomic_write
from rrgclinical.common.shown import redacted
from rrgclinical.labels import OBSERVATIONS
from rrgclinical.metrics import bootstrap_intervals, per_label_f1
from rrgclinical.scorecard import SystemReading, report_rows
from rrgclinical.severity import CAVEAT
from rrgdata.images.read import read_image
from rrgreport import numbers
from rrgreport.html import write_report
from rrgclinical.metrics.registry import metric_of
from rrgreport.provenance import commit, versions
from rrgreport.run_files import RunFiles, read_metrics
from rrgreport.samples import AnySample, Sample, png, read_samples, write_samples
from rrgreport.summary import Metric, RunSummary, System
from rrgreport.table import print_summary
from rrgtrain.ranks import ranks
from rrgtrain.rewards.spending import COSTS
from rrgtrain.run.data import validation_split
from rrgtrain.run.scorecards import run_pairs
from rrgtrain.run.stages import Stages
from rrgtrain.state.history import as_line
from rrgtrain.train.axes_watch import alarm_lines
from rrgtrain.train.evaluate import Evaluation
from rrgtrain.train.rl import RlResult
from rrgtrain.train.sample_collector import SampleCollector
from rrgtrain.train.sft import SftResult
from rrgtrain.train.speed import Speed

SHOWN = (
    "micro_f1",
    "micro_f1_13",
    "macro_f1",
    "micro_f1_5",
    "macro_f1_5",
    "sample_f1",
    "micro_precision",
    "micro_recall",
)

Evaluated = Mapping[str, tuple[Evaluation, SftResult | RlResult | None]]
"""What a system wrote, and what its training cost, by the system's name."""


def system_of(
    evaluation: Evaluation, result: SftResult | RlResult | None, resamples: int
) -> System:
    """One row of the table: metrics with 95 % bootstrap intervals, edits, seconds."""
    values = evaluation.metrics()
    intervals = bootstrap_intervals(evaluation.predicted, evaluation.truth, resamples=resamples)
    metrics = {
        name: Metric(values[name], *intervals.get(name, (None, None)))
        for name in SHOWN
        if name in values
    }
    metrics["reward"] = Metric(values["reward"])
    metrics["words"] = Metric(values["words"])
    metrics |= {k: Metric(v) for k, v in values.items() if k.startswith("reward/")}
    system = System(metrics=metrics)
    f1 = per_label_f1(evaluation.predicted, evaluation.truth)
    system.per_finding = dict(zip(OBSERVATIONS, map(float, f1), strict=True))
    if result is not None:
        system.seconds = result.seconds
        system.phases = dict(result.phases)
    if isinstance(result, RlResult):
        system.metrics["zero_variance"] = Metric(result.zero_variance)
        system.edits = {k.removeprefix("edits/"): v for k, v in result.edits.items()}
    return system


def finish(
    stages: Stages,
    title: str,
    evaluations: Evaluated,
    kept: SampleCollector | None = None,
) -> RunSummary | None:
    """Prints the table and writes summary.json, samples.jsonl and report.html of the run; of
    several ranks, rank 0 does.

    `evaluations` maps systems, in the order of the story, to what they wrote and what they cost.
    """
    rewards = stages.session.rewards
    if rewards:
        rewards.spending.agree()
    if not ranks.is_main():
        return None
    recipe, run = stages.session.recipe, stages.run
    changes = list(stages.checkpointer.changes)
    summary = RunSummary(
        title=title,
        systems={
            name: system_of(evaluation, result, recipe.eval.bootstrap)
            for name, (evaluation, result) in evaluations.items()
        },
        notes=[
            *_notes(stages, next(iter(evaluations.values()))[0]),
            *(
                f"{cut} of {name}'s reports were cut at eval.max_new_tokens="
                f"{recipe.eval.max_new_tokens}."
                for name, (evaluation, _) in evaluations.items()
                if (cut := sum(evaluation.cut))
            ),
            *_other_truths(evaluations),
            *_of_checkpoints(stages, evaluations, read_metrics(run.metrics)),
            *_alike(evaluations),
            *alarm_lines(read_metrics(run.metrics)),
            *(f"Changed by a resume: {as_line(change)}." for change in changes),
            *(rewards.spending.notes() if rewards else []),
        ],
        command=redacted(shlex.join(["rrgtrain", *sys.argv[1:]])),
        finished=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        seconds=time.perf_counter() - stages.began,
        commit=commit(),
        versions=versions(),
        changes=changes,
    )
    samples: list[AnySample] = [*_samples(evaluations, recipe.eval.samples, recipe.data.body_parts)]
    samples += kept.samples() if kept else []
    atomic_write(run.predictions, "".join(_predictions(recipe.reward.blocks, evaluations)))
    # In this order: a run with a summary lacks nothing but the page that is drawn from it.
    write_samples(run.samples, samples)
    summary.save(run.summary)
    draw(stages.run, summary)
    print_summary(summary)
    print(f"\nreport: {run.report}")
    return summary


def say(line: str) -> None:
    """Print a line on rank 0 alone."""
    if ranks.is_main():
        print(line)


def add_costs(stages: Stages, summary: RunSummary) -> None:
    """Put what endpoints have cost by now into the summary and its page."""
    costs = stages.session.rewards.spending.notes()
    if costs:
        summary.notes = [*(n for n in summary.notes if not n.startswith(COSTS)), *costs]
        summary.save(stages.run.summary)
        draw(stages.run, summary)


def draw(run: RunFiles, summary: RunSummary, out: Path | None = None) -> None:
    """Write report.html of a run, or `out`, from what it left in its directory."""
    samples = read_samples(run.samples)
    write_report(run, summary, read_metrics(run.metrics), samples, out or run.report)


def _samples(evaluations: Evaluated, count: int, accepted: list[str]) -> list[Sample]:
    """The studies whose label errors changed most between the first and the last system."""
    names = list(evaluations)
    first, last = evaluations[names[0]][0], evaluations[names[-1]][0]
    change = (first.predicted != first.truth).sum(1) - (last.predicted != last.truth).sum(1)
    # half of them got better, half got worse: a page of successes alone would mislead
    order = change.argsort(kind="stable")
    half = count // 2
    chosen = [*order[::-1][: count - half], *order[:half]]
    samples = []
    for i in dict.fromkeys(int(c) for c in chosen):
        study = first.studies[i]
        samples.append(
            Sample(
                study.id,
                # scaled down at once: those of all samples would take memory as they are
                [png(read_image(image.path, body_parts=accepted)) for image in study.images],
                study.report or "",
                {name: evaluation.reports[i] for name, (evaluation, _) in evaluations.items()},
                indication=study.indication,
                views=[("prior " if i.prior else "") + (i.view or "image") for i in study.images],
                labels=first.truth[i].tolist(),
                facts=_noted(evaluations, "facts", i),
                severity=_noted(evaluations, "severity", i),
            )
        )
    return samples


def _predictions(blocks: str, evaluations: Evaluated) -> Iterator[str]:
    """All reports of the final evaluations, as `rrgtrain eval --predictions` reads them."""
    for name, (one, _) in evaluations.items():
        reasons = one.notes.get("severity", ())
        readings = {name: SystemReading(one.predicted, one.rewards, reasons=reasons)}
        pairs = run_pairs(blocks, {name: one})
        yield from report_rows(pairs, one.truth, readings, {name: one.reports})


def _noted(evaluations: Evaluated, term: str, study: int) -> dict[str, Any] | None:
    """What a term noted of each system's report of a study; None where it was not asked."""
    read = {name: found.notes.get(term) for name, (found, _) in evaluations.items()}
    return {name: notes[study] for name, notes in read.items() if notes} or None


def _other_truths(evaluations: Evaluated) -> list[str]:
    """Say where a resume with other settings has changed by what systems are judged."""
    first, *others = [evaluation.truth for evaluation, _ in evaluations.values()]
    if all(np.array_equal(first, truth) for truth in others):
        return []
    return [
        "The systems are judged by different true labels, as settings changed between their "
        "evaluations: compare with care."
    ]


def _of_checkpoints(
    stages: Stages, evaluations: Evaluated, rows: list[dict[str, Any]]
) -> list[str]:
    """Say which step each training's checkpoint is of, and how far it had fallen since."""
    notes, by = [], stages.session.recipe.eval.best_by
    for name, (_, result) in evaluations.items():
        if result is None:
            continue
        phase = "sft" if isinstance(result, SftResult) else getattr(stages.algorithm, "name", "")
        notes.append(f"{name}'s checkpoint is that of step {result.best_step} of {result.steps}.")
        values = [row[by] for row in rows if row["phase"] == f"{phase}_val" and by in row]
        if values and round(result.best_value - values[-1], 3) > 0:
            fall = numbers.value(result.best_value - values[-1])
            notes.append(f"{name}'s last validation is {fall} below its best, {by}.")
    return notes


def _alike(evaluations: Evaluated) -> list[str]:
    """Say how many reports of the last system are those of the one before it, word for word."""
    if len(evaluations) < 2:
        return []
    (before, (first, _)), (after, (last, _)) = list(evaluations.items())[-2:]
    equal = sum(one == two for one, two in zip(first.reports, last.reports, strict=True))
    return [f"{equal} of {len(last.reports)} reports of {after} equal those of {before}."]


def _notes(stages: Stages, evaluation: Evaluation) -> list[str]:
    recipe = stages.session.recipe
    by = recipe.eval.best_by
    trained = stages.run.checkpoints.is_dir() and any(stages.run.checkpoints.iterdir())
    chosen_on = validation_split(stages.session.studies) if trained else None
    kind = "held-out"
    if recipe.eval.split == "train":
        kind = "training"
    elif recipe.eval.split == chosen_on:
        kind = "validation"
    notes = [f"{len(evaluation.studies)} {kind} studies; greedy reports; 95 % bootstrap intervals."]
    if chosen_on == "train":
        notes.append("The data has no val studies: checkpoints were chosen on train.")
    if trained:
        notes.append(f"Checkpoints were chosen by {metric_of(by).title}.")
    if recipe.data.source == "phantom":
        notes.append("Procedural phantoms, not patients: no number here is a clinical result.")
    speed = Speed(stages.session.policy).note() if trained and stages.session.policy else None
    notes += [speed] if speed else []
    if "severity" in recipe.reward.terms:
        notes.append(f"{CAVEAT[0].upper()}{CAVEAT[1:]}")
    if recipe.reward.labeller == "rules":
        notes.append("Labels and entities by the rules backend; it is not CheXbert or RadGraph.")
    return notes
