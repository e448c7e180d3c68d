"""Test the learning bench: its training data, and its judgement."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments import learning
from rrgtrain.run import stages
from tests.rrgtrain.runs import TINY_RUN

SEEDS = [1, 2]


def test_only_sft_on_chosen_and_rl_see_the_studies_that_the_recipe_chooses(
    tmp_path, monkeypatch
) -> None:
    seen: dict[tuple[str, str], int] = {}
    train_sft, train_rl = stages.train_sft, stages.train_rl

    def tuned(run):
        seen["sft", job] = len(run.studies)
        return train_sft(run)

    def trained(run):
        seen[run.settings.algorithm, job] = len(run.studies)
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
    assert learning.verdict(tmp_path, [1])["studies"] > 0
    kept = json.loads((tmp_path / "seed1" / "sft.json").read_text())["identity"]
    assert kept == learning.identity("learning", settings)
    assert rollouts["editgrpo"] == rollouts["dr_grpo"] > 0


def told(share: float) -> list[list[int]]:
    """Class ids of 100 reports, of which a share tells an effusion and the others nothing."""
    good = round(100 * share)
    return [[int(column == 9) for column in range(14)]] * good + [[0] * 14] * (100 - good)


def written(out: Path, right: dict[str, float]) -> Path:
    """Results in which a share `right` of 100 studies with effusion is told as it is."""
    for seed in SEEDS:
        home = out / f"seed{seed}"
        (home / "data").mkdir(parents=True)
        train = [{"report": "Small left effusion. Clear lungs."}, {"report": "Clear lungs."}]
        (home / "data" / "annotation.json").write_text(json.dumps({"train": train}))
        for name, share in right.items():
            result = {
                "test": {"reward": share},
                "predicted": told(share),
                "truth": told(1.0),
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
def test_the_verdict(tmp_path, change, failing, capsys) -> None:
    found = learning.verdict(written(tmp_path, {**RIGHT, **change}), SEEDS)
    rows = found["editgrpo_minus"]
    judged = {name: row["verdict"] for name, row in rows.items()}
    assert {name for name, said in judged.items() if said == "fails"} == failing
    assert {name for name, said in judged.items() if said == "not judged"} == {"sft_on_chosen"}
    assert rows["sft_on_chosen"]["difference"] < 0
    assert found["systems"]["editgrpo"]["unheard"] == [0.25, 0.25]
    learning.show(found)
    lines = capsys.readouterr().out.splitlines()
    assert sum("fails" in line for line in lines) == len(failing)
    assert sum("not judged" in line for line in lines) == 1


def unlike(out: Path, seed: int, share: float) -> None:
    path = out / f"seed{seed}" / "editgrpo.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "predicted": told(share)}))


def test_one_seed_that_loses_leaves_it_undecided(tmp_path) -> None:
    unlike(written(tmp_path, RIGHT), 2, 0.29)
    row = learning.verdict(tmp_path, SEEDS)["editgrpo_minus"]["sft"]
    assert row["difference"] > 0.05 and row["verdict"] == "undecided"


def test_the_page_tells_the_recorded_results(monkeypatch, capsys) -> None:
    root = Path(__file__).parents[2]
    recorded = str(root / "experiments" / "results" / "learning.json")
    monkeypatch.setattr("sys.argv", ["learning", "--show", recorded])
    assert learning.main() == 0
    shown = [x for x in capsys.readouterr().out.splitlines() if x.startswith("EditGRPO - ")]
    page = (root / "docs" / "evidence.md").read_text("utf-8")
    rows = page.split("| EditGRPO (")[1].split("\n\n")[0].splitlines()[2:]
    assert len(shown) == len(rows) == 4

    def numbers(line: str) -> list[str]:
        return re.findall(r"[-+]\d\.\d{3}", line)

    assert [numbers(row) for row in rows] == [numbers(line) for line in shown]
    assert all("not judged" in line for line in shown)
