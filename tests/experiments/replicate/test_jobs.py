"""The table of jobs and claims, what a result depends on, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from experiments.replicate import jobs as jobs_module
from experiments.replicate.__main__ import main
from experiments.replicate.claims import CLAIMS, MEASURES, chosen_claims
from experiments.replicate.cost import clock, seconds_of, wall_seconds
from experiments.replicate.jobs import HEADLINE, JOBS, Task, changes, digest, identity, with_needs
from experiments.replicate.results import Result, begin, stale
from rrgtrain.algorithms import build_algorithm
from rrgtrain.errors import UserError
from tests.experiments.replicate.common import leave, task

DIFFERENT = {
    "grpo": ("dr_grpo", {"rl.algorithm", "rl.std", "rl.aggregation"}),
    "editgrpo_para": ("editgrpo", {"edit.level"}),
    "editgrpo_exact": ("editgrpo", {"edit.match"}),
    "mrg_r1_format": ("mrg_r1", {"reward.terms.format", "reward.terms.mccs"}),
    "ditpo_f1": ("ditpo", {"reward.terms.bleu2", "reward.starts", "reward.starts.bleu2"}),
    "ditpo_mixed": ("ditpo", {"reward.starts", "reward.starts.bleu2"}),
    "orapo_grpo": ("orapo", {"rl.algorithm"}),
    "orapo_400": ("orapo", {"data.balanced"}),
    "deer": ("ditpo", set()),
}


@pytest.fixture(autouse=True)
def _forget() -> None:
    jobs_module._identity.cache_clear()


def test_every_job_is_a_recipe_that_trains_what_its_kind_says(tmp_path: Path) -> None:
    drawn = Task(JOBS["data"], 2, tmp_path).recipe().data.phantom.train
    for name, job in JOBS.items():
        made = Task(job, 2, tmp_path)
        recipe = made.recipe()
        assert recipe.seed == recipe.policy.seed == recipe.data.phantom.seed == 2
        assert recipe.data.phantom.train == drawn, f"{name} has other phantoms"
        if job.kind == "rl":
            build_algorithm(recipe)
            assert recipe.policy.path == str(made.home / job.start / "checkpoints" / "sft")
            assert JOBS[job.start].kind == "sft"
        assert seconds_of(made) > seconds_of(Task(job, 2, tmp_path, quick=True)), name


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_compared_differs_in_what_is_asked_alone(name: str, tmp_path: Path) -> None:
    other, keys = DIFFERENT[name]
    mine, theirs = (identity(Task(JOBS[n], 0, tmp_path)) for n in (name, other))
    found = {line.split(" ")[0] for line in changes(theirs["recipe"], mine["recipe"])}
    assert found == keys
    assert JOBS[name].start == JOBS[other].start


def test_claims_name_jobs_and_measures_that_exist() -> None:
    assert {c.group for c in CLAIMS} == set("abcd")
    for claim in CLAIMS:
        assert set(claim.jobs) <= set(JOBS)
        assert claim.figure in claim.measures and set(claim.measures) <= set(MEASURES)
        labels = {row.label for row in claim.rows}
        assert all({c.first, c.second} <= labels for c in claim.checks) and claim.checks
        assert {c.measure for c in claim.checks} <= set(claim.measures)
    shown = {job for claim in CLAIMS for job in claim.jobs}
    assert set(JOBS) - shown <= {"data"} and set(HEADLINE) <= shown
    assert chosen_claims(["c", "edits"])[0].name == "edits"
    assert {c.group for c in chosen_claims(["c"])} == {"c"}
    with pytest.raises(UserError, match="--claims e is unknown; choose letters of papers"):
        chosen_claims(["e"])


def test_needs_come_first_and_nothing_else_comes() -> None:
    assert with_needs(["deer"]) == ["data", "sft", "select", "deer"]
    assert with_needs(["orapo", "grpo"]) == ["data", "sft", "base", "grpo", "orapo"]
    with pytest.raises(UserError, match="--job drgrpo is unknown; jobs are: data, sft"):
        with_needs(["drgrpo"])


def test_a_digest_follows_settings_and_needs_but_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(identity(task("editgrpo", 0, tmp_path)))
    assert digest(identity(task("editgrpo", 0, tmp_path / "moved"))) == before
    assert digest(identity(task("editgrpo", 1, tmp_path))) != before
    assert digest(identity(task("editgrpo", 0, tmp_path, quick=False))) != before
    # the same recipe from another start is another result
    longer = dataclasses.replace(JOBS["sft"], quick=("sft.steps=41",))
    monkeypatch.setitem(JOBS, "sft", longer)
    jobs_module._identity.cache_clear()
    after = digest(identity(task("editgrpo", 0, tmp_path)))
    assert after != before
    monkeypatch.setattr(jobs_module, "versions", lambda: {"torch": "9", "python": "3.99"})
    jobs_module._identity.cache_clear()
    newest = identity(task("editgrpo", 0, tmp_path))
    assert digest(newest) != after and newest["versions"]["torch"] == "9"
    assert "python" not in newest["versions"]


def test_a_changed_recipe_is_told_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in with_needs(["sft"]):
        leave(task(name, 0, tmp_path), known=True)
    made = task("sft", 0, tmp_path)
    assert stale(made) is None
    monkeypatch.setitem(JOBS, "sft", dataclasses.replace(JOBS["sft"], quick=("sft.lr=0.5",)))
    jobs_module._identity.cache_clear()
    changed = task("sft", 0, tmp_path)
    assert stale(changed) == "sft of seed 0: sft.lr 0.002 -> 0.5"
    words = ["--quick", "--job", "sft", "--seeds", "0", "--out", str(tmp_path)]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert (
        "holds results of other settings or versions (sft of seed 0: sft.lr 0.002 -> 0.5)" in told
    )
    assert "name another --out, or compute those anew with --again" in told
    assert Result.load(changed.result).measures["micro_f1"].value()[0] > 0, "nothing was removed"


def test_what_was_begun_by_another_recipe_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(task("sft", 0, tmp_path))
    assert stale(task("sft", 0, tmp_path)) is None
    monkeypatch.setitem(JOBS, "sft", dataclasses.replace(JOBS["sft"], quick=("sft.lr=0.5",)))
    jobs_module._identity.cache_clear()
    begin(task("sft", 0, tmp_path))
    assert stale(task("sft", 0, tmp_path)) == "sft of seed 0: sft.lr 0.002 -> 0.5"


def test_commands_of_the_table_are_the_trainers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(jobs_module.RECIPES.parents[2])
    made = Task(JOBS["deer"], 1, Path("out"))
    assert made.command == (
        "rrgtrain rl experiments/replicate/recipes/common.yaml+deer"
        "+experiments/replicate/recipes/deer_size.yaml --out out/seed1/deer "
        "--from out/seed1/sft/checkpoints/sft seed=1 policy.seed=1 data.phantom.seed=1 "
        "data.root=out/seed1/data data.subset=out/seed1/select/subset.json"
    )
    data = Task(JOBS["data"], 0, Path("out"), quick=True)
    assert data.recipe_name == "+".join(
        f"experiments/replicate/recipes/{name}.yaml" for name in ("common", "quick")
    )
    monkeypatch.chdir(tmp_path)
    assert data.recipe() and f"rrgtrain data {jobs_module.RECIPES}/common.yaml+" in data.command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workers", "0"], "--workers 0; give at least 1"),
        (["--seeds", "1", "1"], "--seeds 1 1; give different numbers from 0 on"),
        (["--seeds", "-1"], "--seeds -1; give different numbers from 0 on"),
        (["--slice", "0"], "--slice 0; give a number of seconds above 0"),
        (["--claims", "x"], "--claims x is unknown"),
        (["--job", "sft"], "--job sft is of one seed; name it by --seeds"),
        (["--job", "x", "--seeds", "0"], "--job x is unknown"),
        (["--job", "grpo", "--seeds", "0"], "grpo of seed 0 needs data, which has not run in"),
        (["sft.steps=3"], "unrecognized arguments: sft.steps=3"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path), *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and told in lines[0]
    assert not list(tmp_path.iterdir())


def test_the_list_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--claims", "oracle", "--out", str(tmp_path / "x")]) == 0
    shown = capsys.readouterr().out
    assert "The oracle lowers the rate of zero rewards faster" in shown
    assert "12 jobs to run, 0 finished before: about" in shown and "an estimate" in shown
    assert "editgrpo" not in shown and not (tmp_path / "x").exists()


def test_estimates_in_words() -> None:
    assert [clock(s) for s in (40.4, 840, 7500)] == ["40 s", "14 min", "2 h 05 min"]
    assert wall_seconds([10, 10, 10], 2) == 15 and wall_seconds([30, 2], 2) == 30
    assert wall_seconds([], 2) == 0
