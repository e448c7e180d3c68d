"""Jobs at the smallest size, in this process: a result, its resume, the budget, the report."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.iu_evidence import command
from experiments.iu_evidence.__main__ import main
from experiments.iu_evidence.arms import ARMS, CLAIMS, with_needs
from experiments.iu_evidence.cost import seconds_of
from experiments.iu_evidence.mechanism import EditRecorder, places
from experiments.iu_evidence.packed import read_packed, unpacked, write_packed
from experiments.iu_evidence.report import results_of, told
from experiments.iu_evidence.run import work
from experiments.iu_evidence.tasks import FoldTask
from experiments.replicate.results import Result
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from tests.experiments.iu_evidence.common import iu_directory
from tests.experiments.replicate.test_runner import Played


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("evidence")
    root = iu_directory(home / "iu")
    for name in with_needs(["editgrpo"]):
        work(FoldTask(ARMS[name], 0, home / "out", True), root, "cpu")
    return home


def test_a_result_holds_counts_of_each_held_out_study_and_no_report(home) -> None:
    result = Result.load(FoldTask(ARMS["editgrpo"], 0, home / "out", True).result)
    facts = result.facts
    held_out = json.loads((home / "out/fold0/data/annotation.json").read_text())["test"]
    assert facts["ids"] == [entry["id"] for entry in held_out]
    for key in ("predicted", "truth", "codes", "bleu4", "words", "sentences", "unheard"):
        assert len(facts[key]) == len(held_out), key
    assert facts["steps"] == len(facts["curves"]["entropy"]) == 2
    assert facts["validations"]["step"] == [0, 2]
    assert {len(values) for values in facts["validations"].values()} == {2}
    assert sum(facts["gradient_share"].values()) == pytest.approx(1, abs=1e-5)
    assert sum(row["edits"] for row in facts["gains"].values()) > 0
    assert not any(entry["report"] in json.dumps(facts) for entry in held_out)
    assert not (home / "out/fold0/editgrpo/resume").exists()


def test_arms_of_different_trainings_of_a_start_are_not_compared(home, tmp_path) -> None:
    claim = dataclasses.replace(CLAIMS[0], checks=(), beside=("start", "editgrpo"), folds=(0,))
    results = results_of(claim, home / "out", (0,), quick=True)
    assert results is not None and "Verdict: measured" in "\n".join(told(claim, results))
    assert "Verdict: not run." in told(claim, results_of(claim, tmp_path, (0,), quick=True))[-1]
    folder = tmp_path / "fold0"
    folder.mkdir()
    for name in ("start", "editgrpo"):
        content = json.loads((home / f"out/fold0/{name}.json").read_text())
        content["facts"]["steps"] += name == "start"
        (folder / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="fold 0: .*come from different trainings of start"):
        results_of(claim, tmp_path, (0,), quick=True)


def test_the_fixed_report_earns_most_of_the_training_reports(home) -> None:
    for name in ("data_95", "fixed_95"):
        work(FoldTask(ARMS[name], 0, home / "out", True), home / "iu", "cpu")
    task = FoldTask(ARMS["fixed_95"], 0, home / "out", True)
    facts = Result.load(task.result).facts
    splits = json.loads((home / "out/fold0/data_95/annotation.json").read_text())
    truth = [study["report"] for study in splits["train"] if study["id"].endswith("_k1")]
    rewards = RewardService(task.recipe().reward)
    means = {text: rewards([text] * len(truth), truth)["total"].mean() for text in set(truth)}
    references = [study["report"] for study in splits["test"]]
    earned = [
        rewards([text] * len(references), references)["total"]
        for text, mean in means.items()
        if mean > max(means.values()) - 1e-9
    ]
    assert facts["distinct"] == 1
    assert any(np.allclose(facts["scores"]["reward"], one, atol=1e-6) for one in earned)


def test_every_job_has_a_recipe_and_an_estimate() -> None:
    lost = []
    for name in ARMS:
        task = FoldTask(ARMS[name], 1, Path("out"))
        recipe = task.recipe()
        if seconds_of(task) <= 0 or (ARMS[name].kind != "data" and recipe.data.images != "none"):
            lost.append(name)
        recipe = FoldTask(ARMS[name], 1, Path("out"), True).recipe()
        lost += [name] if max(recipe.rl.steps, recipe.sft.steps) > 2 else []
    assert not lost
    judges: dict[str, set[str]] = {}
    for name in ARMS:
        judge = FoldTask(ARMS[name], 1, Path("o")).recipe().eval.best_by
        judges.setdefault(judge, set()).add(name)
    trained = {name for name in ARMS if ARMS[name].kind not in ("data", "fixed")}
    by_reward = {name for name in trained if name.endswith(("_by_reward", "_95"))}
    assert judges.pop("reward") - {"fixed_95"} == by_reward | {"blind"} and len(by_reward) == 10
    assert list(judges) == ["micro_f1_13"], "one judge chooses every other arm's checkpoint"


def test_places_of_a_change() -> None:
    cases = {
        ((1, 2, 9, 4), (1, 2, 3, 4)): (2, 3),
        ((1, 2, 3), (1, 2, 9, 3)): (2, 2),
        ((1, 2, 7, 8, 3), (1, 2, 3)): (2, 4),
        ((1, 1, 1), (1, 1)): (2, 3),
    }
    assert {case: places(*case) for case in cases} == cases
    recorder = EditRecorder()
    recorder.shares, recorder.gains = [{"before": 0.5, "at": 0.5, "behind": 0.0}], {"a": [1.0]}
    again = EditRecorder()
    again.load_state_dict(json.loads(json.dumps(recorder.state_dict())))
    assert again.summary() == recorder.summary()


def test_the_command_runs_estimates_and_keeps_what_has_finished(
    home, tmp_path, monkeypatch, capsys
) -> None:
    def in_this_process(task: FoldTask, words: list[str]) -> Played:
        assert words == ["--data", str(home / "iu"), "--device", "cpu", "--slice", "480.0"]
        return Played(lambda: work(task, home / "iu", "cpu") or 0)

    monkeypatch.setattr(command, "child", in_this_process)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    words = ["--arms", "data", "--folds", "0", "1", "--data", str(home / "iu")]
    words += ["--out", str(tmp_path / "out"), "--claims", "rl"]
    assert main([*words, "--estimate"]) == 0
    assert "2 jobs to run, 0 finished before: about 24 s" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "Verdict: not run." in text and "3 checks" in text
    for kind, fold in (("dev", 0), ("judged", 1)):
        file, place = tmp_path / "results" / f"{kind}.jsonl.gz", f"fold{fold}/data.json"
        whole = json.loads((tmp_path / "out" / place).read_text())
        assert read_packed(file) == {place: whole}
        before = file.read_bytes()
        write_packed(file, read_packed(file))
        assert file.read_bytes() == before, "the same results are the same bytes"
        again = ["--keep", str(file), "--folds", str(fold), "--out", str(tmp_path / kind)]
        assert main([*words, *again, "--estimate"]) == 0
        assert "0 jobs to run, 1 finished before" in capsys.readouterr().out
        with unpacked(file) as home_again:
            assert json.loads((home_again / place).read_text()) == whole
