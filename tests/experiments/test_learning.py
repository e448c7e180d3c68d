"""Test the learning bench: its training data, and its judgement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import learning
from rrgtrain.run import stages
from tests.rrgtrain.runs import TINY_RUN

SEEDS = [1, 2]


def test_only_sft_on_chosen_and_rl_see_the_studies_that_the_recipe_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[tuple[str, str], int] = {}
    train_sft, train_rl = stages.train_sft, stages.train_rl

    def tuned(run):
        seen[run.recipe.rl.algorithm, job] = len(run.studies)
        return train_sft(run)

    def trained(run):
        seen[run.recipe.rl.algorithm, job] = len(run.studies)
        return train_rl(run)

    monkeypatch.setattr(stages, "train_sft", tuned)
    monkeypatch.setattr(stages, "train_rl", trained)
    # in this process, whose settings other tests share
    own = ["data.balanced=3", "sft.wall_seconds=0.1", "deterministic=false"]
    settings = [*TINY_RUN, *own]
    for job in learning.NEEDS:
        learning.run_job(job, 1, tmp_path, "learning", settings)
    assert {job: studies for (_, job), studies in seen.items()} == {
        "sft": 8,
        "sft_continued": 8,
        "sft_on_chosen": 3,
        "editgrpo": 3,
        "dr_grpo": 3,
    }
    assert ("dr_grpo", "dr_grpo") in seen and ("editgrpo", "editgrpo") in seen
    rollouts = {
        name: json.loads((tmp_path / "seed1" / f"{name}.json").read_text())["rollouts"]
        for name in ("editgrpo", "dr_grpo")
    }
    assert rollouts["editgrpo"] == rollouts["dr_grpo"] > 0


def written(out: Path, right: dict[str, float]) -> Path:
    """Results in which a share `right` of 100 studies with effusion is told as it is."""
    effusion, none = [0] * 14, [0] * 14
    effusion[9] = 1
    for seed in SEEDS:
        home = out / f"seed{seed}"
        (home / "data").mkdir(parents=True)
        train = [{"report": "Small left effusion. Clear lungs."}, {"report": "Clear lungs."}]
        (home / "data" / "annotation.json").write_text(json.dumps({"train": train}))
        for name, share in right.items():
            good = round(100 * share)
            f1 = 2 * good / (good + 100)
            result = {
                "test": {"micro_f1": f1, "reward": share},
                "predicted": [effusion] * good + [none] * (100 - good),
                "truth": [effusion] * 100,
                "reports": ["Clear lungs. Small left effusion.", "Clear lung. Clear lungs."],
                **{"seconds": 1.0, "rollouts": 8, "best_step": 3},
            }
            (home / f"{name}.json").write_text(json.dumps(result))
    return out


RIGHT = {"sft": 0.3, "sft_continued": 0.35, "dr_grpo": 0.5, "editgrpo": 0.8, "sft_on_chosen": 0.9}


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, set()),
        ({"dr_grpo": 0.8}, {"dr_grpo"}),
        ({"sft_continued": 0.85}, {"sft_continued"}),
        ({"sft": 0.75}, {"sft"}),  # better, and by less than five points
    ],
)
def test_the_verdict(tmp_path: Path, change: dict[str, float], failing: set[str], capsys) -> None:
    found = learning.verdict(written(tmp_path, {**RIGHT, **change}), SEEDS)
    rows = found["editgrpo_minus"]
    assert {name for name, row in rows.items() if row["passed"] is False} == failing
    assert {name for name, row in rows.items() if row["passed"] is None} == {"sft_on_chosen"}
    assert rows["sft_on_chosen"]["difference"] < 0
    assert found["systems"]["editgrpo"]["unheard"] == [0.25, 0.25]
    learning.show(found)
    lines = capsys.readouterr().out.splitlines()
    assert sum("FAILS" in line for line in lines) == len(failing)
    assert sum("not judged" in line for line in lines) == 1


def test_one_seed_that_loses_fails_the_first(tmp_path: Path) -> None:
    written(tmp_path, RIGHT)
    path = tmp_path / "seed2" / "editgrpo.json"
    lost = json.loads(path.read_text())
    lost["test"]["micro_f1"] = 0.1
    path.write_text(json.dumps(lost))
    assert not learning.verdict(tmp_path, SEEDS)["editgrpo_minus"]["sft"]["passed"]
