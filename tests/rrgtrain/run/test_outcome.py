"""The files of a finished run and of `rrgtrain eval --predictions`."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rrgclinical.scorecard import FILES
from rrgdata.study import Study
from rrgreport.samples import Sample, read_samples
from rrgreport.summary import RunSummary
from rrgtrain.algorithms import build_algorithm
from rrgtrain.log.logs import RunLog
from rrgtrain.rewards import RewardService
from rrgtrain.run.outcome import finish, system_of
from rrgtrain.run.scorecards import evaluate_files, score_run
from rrgtrain.run.session import Session
from rrgtrain.run.stages import Stages
from rrgtrain.schema import DataSettings, Recipe
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.evaluate import Evaluation, score
from rrgtrain.train.rl import RlResult
from tests.rrgtrain.common import recipe, studies


def evaluated(given: list[Study], reports: list[str], **reward: object) -> Evaluation:
    return score(reports, given, RewardService(replace(Recipe().reward, **reward)))


def test_a_row_of_the_table(tmp_path: Path) -> None:
    given = studies(4)
    evaluation = evaluated(given, [given[0].report or "", "", "Edema.", ""])
    edits = {"edits/a": 3.0, "edits/unchanged": 1.0}
    result = RlResult(Path("x"), 0.5, 2, 4, 12.5, {"rollout": 3.0}, 0.25, edits, 8)
    rewards, settings = RewardService(Recipe().reward), recipe("eval.meteor=false").eval
    card = score_run(settings, rewards, DataSettings(source="table"), {"RL": evaluation}, tmp_path)
    row = system_of(card, "RL", evaluation, result)
    micro = row.metrics["micro_f1"]
    assert micro.value == pytest.approx(evaluation.metrics()["micro_f1"])
    assert micro.low is not None and micro.high is not None
    assert micro.low <= micro.value <= micro.high
    assert row.edits == {"a": 3.0, "unchanged": 1.0}
    assert row.metrics["zero_variance"].value == 0.25
    assert (row.seconds, row.phases) == (12.5, {"rollout": 3.0})
    assert {"reward", "words", "reward/match"} <= set(row.metrics)
    assert len(row.per_finding) == 14
    bare = system_of(card, "RL", evaluation, None)
    assert bare.seconds is None and not bare.edits and "zero_variance" not in bare.metrics


def test_patients_are_drawn_from_a_run_and_from_its_file_of_reports(tmp_path: Path) -> None:
    given = [replace(study, patient=f"p{i // 2}") for i, study in enumerate(studies(4))]
    cfg = recipe("eval.meteor=false")
    evaluation = evaluated(given, ["Edema.", "No effusion.", "", "Normal chest."])
    card = score_run(
        cfg.eval,
        RewardService(cfg.reward),
        DataSettings(source="table"),
        {"RL": evaluation},
        tmp_path,
    )
    again = evaluate_files(cfg, [str(tmp_path / FILES[3])], tmp_path / FILES[3], None)
    assert card.patients == again.patients == 2
    assert card.groups[0].systems["RL"]["micro_f1"] == again.groups[0].systems["RL"]["micro_f1"]


def opened(cfg: Recipe, splits: dict[str, list[Study]]) -> Session:
    cfg.eval.meteor = False
    return Session(cfg, splits, None, None, RewardService(cfg.reward))  # type: ignore[arg-type]


def finished(
    tmp_path: Path,
    cfg: Recipe,
    given: list[Study],
    splits: dict,
    reports: list[str],
    **reward: object,
) -> tuple[RunSummary, RunDir]:
    cfg.reward = replace(cfg.reward, **reward)
    session = opened(cfg, splits)
    run = RunDir.create(tmp_path / "run")
    (run.checkpoints / "sft").mkdir()
    with Stages(session, run, RunLog(run), began=time.perf_counter() - 60) as stages:
        stages.log.write("sft", 0, {"loss": 1.0})
        evaluation = evaluated(given, reports, **reward)
        summary = finish(stages, "SFT", {"SFT": (evaluation, None)})
    return summary, run


def test_finish_leaves_summary_samples_and_report_and_prints_the_table(tmp_path, capsys):
    given = studies(4, "test")
    splits = {"train": studies(4), "val": studies(2, "val"), "test": given}
    cfg = recipe("eval.samples=2")
    summary, run = finished(tmp_path, cfg, given, splits, ["Edema."] * 4)
    assert RunSummary.load(run.summary) == summary
    assert json.loads(run.summary.read_text())["title"] == "SFT"
    assert summary.seconds is not None and summary.seconds >= 60, "the clock of the run"
    kept = [s for s in read_samples(run.samples) if isinstance(s, Sample)]
    assert len(kept) == 2 and all(s.outputs == {"SFT": "Edema."} for s in kept)
    assert all(s.reference == next(g.report for g in given if g.id == s.id) for s in kept)
    # all reports, of which the samples are a few
    rows = [json.loads(line) for line in run.predictions.read_text().splitlines()]
    assert [(r["system"], r["id"], r["report"], r["reference"]) for r in rows] == [
        ("SFT", study.id, "Edema.", study.report) for study in given
    ]
    assert {"total", "match"} <= set(rows[0]["scores"]) and len(rows[0]["labels_predicted"]) == 14
    page = run.report.read_text()
    assert "<svg" in page and page.count("<article") == 4, (
        "of all studies, not of the samples alone"
    )
    out = capsys.readouterr().out
    assert "micro-F1" in out and f"report: {run.report}" in out
    assert any("by the rules backend" in note for note in summary.notes)
    assert "`" not in out + run.report.read_text(), "a note is no Markdown"
    assert summary.notes[0].startswith("4 held-out studies; greedy reports")


@pytest.mark.parametrize(
    ("split", "with_val", "told"),
    [
        ("test", True, "2 held-out studies"),
        ("val", True, "2 validation studies"),
        ("train", True, "2 training studies"),
        ("test", False, "2 held-out studies"),
    ],
)
def test_notes_say_on_which_studies(split: str, with_val: bool, told: str, tmp_path: Path) -> None:
    given = studies(2, split)
    splits = {"train": studies(2), "val": studies(2, "val") if with_val else [], "test": given}
    summary, _ = finished(tmp_path, recipe(f"eval.split={split}"), given, splits, ["", ""])
    assert summary.notes[0].startswith(told)
    assert ("checkpoints were chosen on train" in " ".join(summary.notes)) is not with_val


def test_notes_say_which_step_was_kept_what_fell_since_and_what_is_alike(tmp_path: Path) -> None:
    given = studies(3, "test")
    splits = {"train": studies(1), "val": studies(1, "val"), "test": given}
    before = evaluated(given, ["Edema.", "", "Clear."])
    after = replace(before, reports=["Edema.", "", "Pneumonia."])
    session = opened(recipe("eval.best_by=reward"), splits)
    run = RunDir.create(tmp_path / "run")
    (run.checkpoints / "x").mkdir()
    result = RlResult(Path("x"), 0.9, 2, 4, 1.0, {}, 0.0, {}, 8)
    start, algorithm = replace(result, best_step=0), build_algorithm(session.recipe)
    with Stages(session, run, RunLog(run), algorithm) as stages:
        for step, value in ((1, 0.9), (3, 0.55)):
            stages.log.write(f"{algorithm.name}_val", step, {"reward": value})
        notes = finish(stages, "a", {"start": (before, None), "RL": (after, result)}).notes  # type: ignore[union-attr]
        whole = finish(stages, "a", {"start": (before, None), "RL": (before, start)})
        stages.log.write(f"{algorithm.name}_val", 5, {"reward": 0.95})
        later = finish(stages, "a", {"RL": (after, result)})
    assert "RL's checkpoint is that of step 2 of 4." in notes
    assert "RL's last validation is 0.350 below its best, reward." in notes
    assert "2 of 3 reports of RL equal those of start." in notes
    assert whole is not None and "3 of 3 reports of RL equal those of start." in whole.notes
    assert "RL's checkpoint is that of the start (step 0 of 4)." in whole.notes
    assert later is not None and not any("below its best" in note for note in later.notes)
