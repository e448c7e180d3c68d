"""Write what a run leaves: table, summary, samples and the HTML report."""

from __future__ import annotations

import datetime
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rrgclinical.common.shown import redacted
from rrgclinical.common.stop import stopping
from rrgclinical.metrics.registry import LABELS, METRICS, metric_of, of_source
from rrgclinical.scorecard import Scorecard, as_text
from rrgclinical.severity import alarm_lines, caveat
from rrgdata.images.read import read_image
from rrgpolicy.ranks import ranks
from rrgreport import numbers
from rrgreport.html import draw
from rrgreport.run_files import read_metrics
from rrgreport.samples import AnySample, Sample, png, write_samples
from rrgreport.summary import Metric, RunSummary, System, commit, versions
from rrgreport.table import print_summary
from rrgreport.wording import wording_notes
from rrgtrain.run.data import validation_split
from rrgtrain.run.scorecards import score_run
from rrgtrain.run.stages import Stages
from rrgtrain.state.identity import as_line
from rrgtrain.train.evaluate import Evaluation, beside
from rrgtrain.train.rl import RlResult
from rrgtrain.train.sft import SftResult
from rrgtrain.train.step_record import samples_of

Evaluated = Mapping[str, tuple[Evaluation, SftResult | RlResult | None]]
"""What a system wrote, and what its training cost, by the system's name."""


def system_of(
    card: Scorecard, name: str, evaluation: Evaluation, result: SftResult | RlResult | None
) -> System:
    """Make a row of the table: metrics of the scorecard, rewards, edits, seconds."""
    system, values = System.of_card(card, name), evaluation.metrics()
    rewards = {key: value for key, value in values.items() if key.startswith("reward")}
    # without a finding in the truth a scorecard leaves metrics over findings out
    undefined = [key for key in of_source(LABELS) if METRICS[key].main]
    values = {key: values[key] for key in (*undefined, *rewards, "words")}
    system.metrics |= {k: Metric(v) for k, v in values.items() if k not in system.metrics}
    if result is not None:
        system.seconds = result.seconds
        system.phases = dict(result.phases)
    if isinstance(result, RlResult):
        system.metrics["zero_variance"] = Metric(result.zero_variance)
        system.edits = {k.removeprefix("edits/"): v for k, v in result.edits.items()}
    return system


def finish(
    stages: Stages, title: str, evaluations: Evaluated, *, tables: bool = False
) -> RunSummary | None:
    """Score what was written; rank 0 leaves the run's files and page.

    Every training and every evaluation of a checkpoint ends here: `metrics.json` with the tables,
    predictions.jsonl, samples.jsonl, summary.json and report.html. `evaluations` maps systems, in
    the order of the story, to what they wrote and what they cost. `tables` prints all tables.
    """
    stages.session.rewards.spending.leave_to_main()
    summaries: list[RunSummary] = []
    # half an hour is soon over where a language model reads every report
    wait_for_main(lambda: summaries.append(_finish(stages, title, evaluations, tables)))
    return summaries[0] if summaries else None


def _finish(stages: Stages, title: str, evaluations: Evaluated, tables: bool) -> RunSummary:
    recipe, run, rewards = stages.session.recipe, stages.run, stages.session.rewards
    written = {name: one for name, (one, _) in evaluations.items()}
    card = score_run(recipe.eval, rewards, recipe.data, written, run.path)
    changes = list(stages.checkpointer.changes)
    # of phantoms alone: to split a data set's reports takes minutes
    split = stages.session.studies.get("train", []) if recipe.data.source == "phantom" else []
    training = [study.report or "" for study in split]
    reports = {name: rewards.scored_text(one.reports) for name, (one, _) in evaluations.items()}
    summary = RunSummary(
        title=title,
        systems={
            name: system_of(card, name, evaluation, result)
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
            *wording_notes(reports, training),
            *alarm_lines(read_metrics(run.metrics)),
            *(f"Changed by a resume: {as_line(change)}." for change in changes),
            *rewards.spending.notes(),
        ],
        command=redacted(shlex.join(["rrgtrain", *sys.argv[1:]])),
        finished=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        seconds=time.perf_counter() - stages.began,
        commit=commit(),
        versions=versions(),
        changes=changes,
    )
    samples: list[AnySample] = [*_samples(evaluations, recipe.eval.samples, recipe.data.body_parts)]
    trained_on = stages.session.chosen or stages.session.studies.get("train", [])
    samples += samples_of(run.steps, {study.id: study.report or "" for study in trained_on})
    # In this order: a run with a summary lacks nothing but the page that is drawn from it.
    write_samples(run.samples, samples)
    summary.save(run.summary)
    draw(stages.run, summary)
    print_summary(summary)
    if tables:
        print(f"\n{as_text(card)}", end="")
    print(f"\nreport: {run.report}")
    return summary


def say(line: str) -> None:
    """Print a line on rank 0 alone."""
    if ranks.is_main():
        print(line)


def wait_for_main(work: Callable[[], None]) -> None:
    """Let rank 0 do what may take longer than `scale.timeout`; the others wait.

    Raises rank 0's error on all.
    """
    group, met = ranks.side_group(), None
    with stopping.deferred():
        try:
            with stopping.interruptible():
                if ranks.is_main():
                    work()
        except Exception as error:
            met = error
        ranks.gather_aside(group, None, met)


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


def _noted(evaluations: Evaluated, term: str, study: int) -> dict[str, Any] | None:
    """What a term noted of each system's report of a study; None where it was not asked."""
    read = {name: one.notes.get(term) for name, (one, _) in evaluations.items()}
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
    notes, (by, *others) = [], stages.session.recipe.eval.chosen_by
    for name, (_, result) in evaluations.items():
        if result is None:
            continue
        phase = "sft" if isinstance(result, SftResult) else getattr(stages.algorithm, "name", "")
        step = f"step {result.best_step} of {result.steps}"
        step = step if result.best_step else f"the start ({step})"
        notes.append(f"{name}'s checkpoint is that of {step}.")
        notes += [f"{beside(result.best, o)} is {name}'s best by {o}." for o in others]
        values = [row[by] for row in rows if row["phase"] == f"{phase}_val" and by in row]
        if values and round(result.best_value - values[-1], 3) > 0:
            fall = numbers.value(result.best_value - values[-1])
            notes.append(f"{name}'s last validation is {fall} below its best, {by}.")
    return notes


def _notes(stages: Stages, evaluation: Evaluation) -> list[str]:
    recipe = stages.session.recipe
    by = recipe.eval.chosen_by[0]
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
    if "severity" in recipe.reward.terms:
        notes.append(caveat(stages.session.rewards.model("severity").table))
    if recipe.reward.labeller == "rules":
        notes.append("Labels and entities by the rules backend; it is not CheXbert or RadGraph.")
    return notes
