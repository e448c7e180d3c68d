"""Jobs at the smallest size, and the page of evidence beside the committed results."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.iu_evidence import command
from experiments.iu_evidence.__main__ import main
from experiments.iu_evidence.arms import ARMS, CLAIMS, with_needs
from experiments.iu_evidence.cost import seconds_of
from experiments.iu_evidence.judge import HOLDS
from experiments.iu_evidence.mechanism import EditRecorder, places
from experiments.iu_evidence.packed import read_packed, unpacked, write_packed
from experiments.iu_evidence.report import checked, results_of, told
from experiments.iu_evidence.run import work
from experiments.iu_evidence.tasks import FoldTask
from experiments.jobs.results import Result
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from tests.experiments.iu_evidence.test_data import iu_directory
from tests.experiments.test_jobs import Played


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


def test_places_of_a_change_and_their_summary(tmp_path) -> None:
    cases = {
        ((1, 2, 9, 4), (1, 2, 3, 4)): (2, 3),
        ((1, 2, 3), (1, 2, 9, 3)): (2, 2),
        ((1, 2, 7, 8, 3), (1, 2, 3)): (2, 4),
        ((1, 1, 1), (1, 1)): (2, 3),
    }
    assert {case: places(*case) for case in cases} == cases
    shares = {"before": 0.5, "at": 0.5, "behind": 0.0}
    first, again = ({"step": 0, "shares": shares, "gains": [("a", gain)]} for gain in (9.0, 1.0))
    (tmp_path / "edits.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(again)}\n")
    summary = EditRecorder(tmp_path / "edits.jsonl").summary()
    assert summary == {"gradient_share": shares, "gains": {"a": {"edits": 1, "gain": 1.0}}}


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


ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")


SECTIONS = (
    *(("mccs", "## MCCS"), ("facts", "## FactS"), ("ditpo", "## DiTPO")),
    ("oracle", "## The oracle"),
)
LATER = ("mccs", "facts", "ditpo", "ddsampling", "oracle")


def test_the_page_has_the_figures_and_numbers_of_the_committed_results(tmp_path, capsys) -> None:
    judged = ROOT / "experiments/iu_evidence/results/judged.jsonl.gz"
    claims = ["rl", "rl_by_reward", "edits_by_reward", "severity"]
    assert main(["--report", str(judged), "--claims", *claims, "--figures", str(tmp_path)]) == 0
    assert main(["--report", str(judged), "--claims", *LATER]) == 0
    told = capsys.readouterr().out
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == 3
    for path in drawn:
        assert path.read_bytes() == (ROOT / "docs/img" / path.name).read_bytes(), path.name
    judged = PAGE.partition("## What is claimed")[0]
    differences = re.findall(r"([-+]?[0-9.]+ \[[^]]+\])(?! of 3)", judged)
    assert len(differences) == 39
    assert [
        d for d in differences if d.replace("0.0 [0.0, 0.0]", "+0.0 [+0.0, +0.0]") not in told
    ] == []
    block = told.partition("## severity")[2].partition("first and last validation")[2]
    printed = [re.split(r"\s{2,}", line.strip()) for line in block.splitlines()[:12]]
    shown = PAGE.partition("| validation | start |")[2].splitlines()[2:13]
    assert len(shown) == 11
    for axis, line in zip(printed[1:], shown, strict=True):
        cells = [cell.strip() for cell in line.split("|")[3:-1]]
        assert cells == [value.rpartition(" to ")[2] for value in axis[1:]], axis
    axes = ("reward", "f1_13", "critical_found", "critical_invented", "denied_though_there")
    for claim, section in SECTIONS:
        block = told.partition(f"## {claim}")[2].partition("first and last validation")[2]
        named = {
            line.split()[0]: re.split(r"\s{2,}", line)[1:] for line in block.splitlines()[1:12]
        }
        table = PAGE.partition(section)[2].partition("| validation, last against the start's |")[2]
        for name, line in zip((*axes, "zero_variance"), table.splitlines()[2:8], strict=True):
            start, *cells = [cell.strip() for cell in line.split("|")[2:-1]]
            ends = [value.rpartition(" to ") for value in named[name]]
            assert start == ", ".join(dict.fromkeys(first for first, _, _ in ends if first)), name
            assert cells == [last for _, _, last in ends], name
    printed = [line.split()[1:] for line in told.partition("\ndraw  ")[2].splitlines()[1:6]]
    shown = PAGE.partition("| a fifth drawn by |")[2].splitlines()[2:7]
    assert [line.replace("|", " ").split()[-2:] for line in shown[:4]] == printed[:4]
    assert shown[4].split()[-4] == printed[4][0]


FOLDS = (1, 2, 3, 4)
JUDGED = read_packed(ROOT / "experiments/iu_evidence/results/judged.jsonl.gz")


def test_the_page_has_what_the_starts_at_95_lack_of_their_floor(tmp_path) -> None:
    packed = read_packed(ROOT / "experiments/iu_evidence/results/judged_95.jsonl.gz")
    results: dict[str, list[Result]] = {"start_95": [], "fixed_95": []}
    for arm, of_folds in results.items():
        for fold in FOLDS:
            (file := tmp_path / f"{arm}{fold}").write_text(
                json.dumps(packed[f"fold{fold}/{arm}.json"])
            )
            of_folds.append(Result.load(file))
    (floor,) = {claim.floor for claim in CLAIMS if claim.floor}
    lacks, outcome = checked(floor, results)
    shown = f"{-lacks.value:.2f} [{-lacks.high:.2f}, {-lacks.low:.2f}] of 3 less than the fixed"
    page = " ".join(PAGE.split())
    assert shown in page and outcome != HOLDS
    first = "(" + ", ".join(f"{-value:.2f}" for value in lacks.folds[:3])
    assert f"{first} and {-lacks.folds[3]:.2f};" in page


def facts_of(arm: str, fold: int) -> dict[str, Any]:
    return JUDGED[f"fold{fold}/{arm}.json"]["facts"]


def test_the_page_has_what_the_sampled_reports_of_ditpo_earn() -> None:
    page = " ".join(PAGE.split())

    def mean(arms: tuple[str, ...], curve: str, first: int, last: int) -> float:
        rows = [facts_of(arm, f)["curves"][curve][first:last] for arm in arms for f in FOLDS]
        return float(np.mean(rows))

    weighed = ("deer", "deer_f1")
    others = ("deer_grpo", "deer_tfidf")
    first_five = 100 * mean(weighed + others, "zero_reward", 0, 5)
    for text, value in (
        ("{:.0f} % earned nothing in the first five", first_five),
        ("it is {:.0f} % under GRPO and TF-IDF", 100 * mean(others, "zero_reward", 19, 24)),
        ("{:.0f} % under gradient weights", 100 * mean(weighed, "zero_reward", 19, 24)),
    ):
        assert text.format(value) in page
    grown = mean(("deer",), "report_tokens", 25, 30) / mean(("deer",), "report_tokens", 0, 5)
    assert "Sampled reports grow by up to a third" in page and 1.3 < grown < 4 / 3
    lengths = [facts_of("deer", f)["validations"]["length_ratio"] for f in FOLDS]
    first, last = (float(np.mean([one[end] for one in lengths])) for end in (0, -1))
    assert f"go from {first:.2f} of the reference's length to {last:.2f} under gradient" in page
    for fold in FOLDS:
        assert {facts_of(arm, fold)["best_step"] for arm in weighed} <= {0, 5, 10, 15, 20}


def test_the_page_has_the_groups_that_earn_nothing() -> None:
    page = " ".join(PAGE.split())
    without, with_it = (
        np.mean([np.mean(facts_of(arm, f)["curves"]["zero_groups"]) for f in FOLDS])
        for arm in ("facts_400", "oracle_1")
    )
    assert f"{100 * without:.1f} % of the groups earn nothing without the oracle" in page
    assert f"the oracle, {100 * with_it:.1f} % with it" in page
    for fold in FOLDS[2:]:
        curves = [facts_of(arm, fold)["curves"]["zero_groups"] for arm in ("facts_400", "oracle_1")]
        assert np.mean(curves[0]) == np.mean(curves[1]) and curves[0] != curves[1]


def test_a_start_trained_again_gives_every_held_out_study_the_labels_of_the_first() -> None:
    compared = set()
    for fold in FOLDS:
        first = facts_of("start", fold)
        for arm in ("facts", "accuracy", "deer_grpo", "deer", "deer_tfidf", "deer_f1"):
            again = facts_of(arm, fold)
            if again["best_step"] == 0:
                assert (again["ids"], again["predicted"]) == (first["ids"], first["predicted"])
                compared.add(fold)
    assert compared == set(FOLDS)


TABLES = {
    "| `edit.max_edits`, fold 1 |": ("editgrpo", "edits_2", "edits_all"),
    "| `rl.epochs=2`, fold 1 |": ("ratio_of_rollout", "ratio_1"),
    "| AUC, fold 1 |": (
        *("dr_grpo_65", "editgrpo_65", "dr_grpo", "editgrpo"),
        *("dr_grpo_100", "editgrpo_100"),
    ),
}


@pytest.mark.parametrize("heading", TABLES)
def test_the_page_has_the_numbers_of_each_training_that_is_not_judged(heading) -> None:
    table = PAGE.partition(heading)[2].splitlines()
    names = [cell.strip() for cell in table[0].split("|")]
    rows = table[2 : 2 + len(TABLES[heading])]
    assert not table[2 + len(rows)], "the table has rows that nothing here holds"
    for arm, line in zip(TABLES[heading], rows, strict=True):
        facts = facts_of(arm, 1)
        validated, curves = facts["validations"], facts["curves"]
        reward = validated["reward"]
        cells = [
            " ".join(f"{value:.3f}" for value in validated["f1_13"][::2]),
            f"{reward[0]:.2f} to {reward[-1]:.2f}",
            f"{np.mean(curves['entropy'][-5:]):.2f}",
            f"{np.mean(curves['report_tokens'][-5:]):.0f}",
            ", ".join(f"{100 * share:.0f} %" for share in facts["gradient_share"].values()),
        ][: len(names[names.index("F1 over 13 every ten steps") : -1])]
        assert [cell.strip() for cell in line.split("|")[-1 - len(cells) : -1]] == cells, arm
