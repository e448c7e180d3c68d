"""The table of jobs, what a result depends on, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from experiments.replicate import command
from experiments.replicate import jobs as jobs_module
from experiments.replicate.__main__ import main
from experiments.replicate.jobs import JOBS, Task, changes, digest, identity, with_needs
from experiments.replicate.masking import Judged, mask_top
from experiments.replicate.results import Result, stale
from rrgtrain.algorithms import build_algorithm
from tests.experiments.replicate.test_runner import leave, task

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
def _no_process(monkeypatch) -> None:
    def began(one: Task, slice_seconds: float) -> None:
        raise AssertionError(f"{one.label} began")

    monkeypatch.setattr(command, "child", began)
    jobs_module._identity.cache_clear()


def test_every_job_is_a_recipe_that_trains_what_its_kind_says(tmp_path) -> None:
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
        assert max(recipe.sft.steps, recipe.rl.steps) <= 40 and drawn < 200, "small, on top of all"


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_compared_differs_in_what_is_asked_alone(name, tmp_path) -> None:
    other, keys = DIFFERENT[name]
    mine, theirs = (identity(Task(JOBS[n], 0, tmp_path)) for n in (name, other))
    found = {line.split(" ")[0] for line in changes(theirs["recipe"], mine["recipe"])}
    assert found == keys
    assert JOBS[name].start == JOBS[other].start


def test_a_digest_follows_settings_and_needs_but_no_path(tmp_path, monkeypatch) -> None:
    before = digest(identity(task("editgrpo", 0, tmp_path)))
    assert digest(identity(task("editgrpo", 0, tmp_path / "moved"))) == before
    assert digest(identity(task("editgrpo", 1, tmp_path))) != before
    # the same recipe from another start is another result
    longer = dataclasses.replace(JOBS["sft"], settings=("sft.steps=41",))
    monkeypatch.setitem(JOBS, "sft", longer)
    jobs_module._identity.cache_clear()
    after = digest(identity(task("editgrpo", 0, tmp_path)))
    assert after != before
    monkeypatch.setattr(jobs_module, "versions", lambda: {"torch": "9", "python": "3.99"})
    jobs_module._identity.cache_clear()
    newest = identity(task("editgrpo", 0, tmp_path))
    assert digest(newest) != after and newest["versions"]["torch"] == "9"
    assert "python" not in newest["versions"]


def test_a_changed_recipe_is_told_and_refused(tmp_path, monkeypatch, capsys) -> None:
    for name in with_needs(["sft"]):
        leave(task(name, 0, tmp_path), settings=True)
    made = task("sft", 0, tmp_path)
    assert stale(made) is None
    monkeypatch.setitem(JOBS, "sft", dataclasses.replace(JOBS["sft"], settings=("sft.lr=0.5",)))
    jobs_module._identity.cache_clear()
    changed = task("sft", 0, tmp_path)
    assert stale(changed) == "sft of seed 0: sft.lr 0.002 -> 0.5"
    for words in (["--job", "sft"], []):
        assert main([*words, "--out", str(tmp_path)]) == 2
        line = capsys.readouterr().err
        assert (
            "holds results of other settings or versions (sft of seed 0: sft.lr 0.002 -> 0.5)"
            in line
        )
        assert "name another --out, or compute those anew with --again" in line
    assert Result.load(changed.result).facts["steps"] == 80, "nothing was removed"


# The masking check where the answer is known.
def words_of(text: str) -> list[tuple[int, int]]:
    """A token for each word, with the space before it, as byte-level vocabularies cut."""
    spans, begin = [], 0
    for word in text.split(" "):
        end = begin + len(word) + (begin > 0)
        spans.append((begin, end))
        begin = end
    return spans


TEXT = "There is a large left effusion . The heart is normal ."


def test_the_heaviest_tokens_are_masked_and_the_space_stays() -> None:
    spans = words_of(TEXT)
    weights = np.ones(len(spans))
    weights[5] = 3.0
    weights[3] = 2.0
    assert mask_top(TEXT, spans, weights, 0.1, seed=0) == TEXT.replace("large", "[MASK]").replace(
        "effusion", "[MASK]"
    ), "two of twelve tokens are the tenth, rounded up"
    assert mask_top(TEXT, spans, weights, 0.01, seed=0) == TEXT.replace("effusion", "[MASK]")
    assert mask_top(TEXT, spans, weights, 1.0, seed=0).split() == ["[MASK]"] * 12


def test_tokens_without_a_word_are_neither_counted_nor_masked() -> None:
    text = "no  edema"
    spans = [(0, 2), (2, 3), (3, 9), (9, 9)]
    weights = np.array([1.0, 9.0, 2.0, 9.0])
    assert mask_top(text, spans, weights, 0.1, seed=0) == "no  [MASK]"
    assert mask_top("", [(0, 0)], np.ones(1), 0.1, seed=0) == ""
    # one character of several bytes, which two tokens share, is masked once
    assert mask_top("é b", [(0, 1), (0, 1), (1, 3)], np.array([2.0, 2, 1]), 0.6, 0) == "[MASK] b"


def test_measures_by_hand() -> None:
    before = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    after = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    found = Judged(before, after).measures(group=2)
    assert found["modified"].units == 2 and found["modified"].top[:, 0].tolist() == [0.5, 0.5]
    # 2 hits; 4 labels before and 3 after
    assert found["post_f1"].value()[0] == pytest.approx(2 * 2 / (4 + 3))
    assert found["post_f1"].value(np.array([[2.0, 0.0]]))[0] == pytest.approx(4 / 5)
