"""NaN anywhere stops the run before a weight changes, and the batch can be computed again."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from rrgreport.run_files import read_metrics
from rrgtrain.state.store import load_checkpoint, write_checkpoint
from tests.rrgtrain.runs import TINY_RUN, At, command, finished, rows, started

UPDATE = "rrgtrain.train.gradients:policy_loss"
REWARD = "rrgtrain.rewards.service:RewardService.__call__"
NORM = "torch.nn.utils:clip_grad_norm_"


@pytest.mark.parametrize(
    ("function", "number", "told"),
    [
        (UPDATE, 2, "the policy loss is nan; lower rl.lr"),
        (NORM, 2, "the norm of the gradient is nan; lower the learning rate"),
        (REWARD, 5, "a reward of step 1 is not finite"),
    ],
)
def test_nan_in_reinforcement_learning(
    function: str, number: int, told: str, tmp_path: Path
) -> None:
    words = started("rl.token_budget=100000", "rl.beta=0")
    done = command(*words, cwd=tmp_path, at=At(function, number, "nan"))
    assert done.status == 2
    assert done.last.startswith(f"rrgtrain: editgrpo, step 1: {told}"), done.err
    kept = tmp_path / "run" / "failures" / "editgrpo-1"
    assert (
        "; its batch is kept for: rrgtrain replay run/failures/editgrpo-1; with other" in done.last
    )
    assert done.last.endswith("rrgtrain rl --resume run rl.lr=...")
    assert [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "editgrpo"] == [0]
    state = load_checkpoint(kept).state
    assert state["step"] == 1 and len(state["batch"]["members"]) >= 4
    before = load_checkpoint(sorted((tmp_path / "run" / "resume").iterdir())[-1]).state
    assert before["step"] == 1
    assert all(torch.equal(w, before["weights"][n]) for n, w in state["weights"].items())
    assert all(bool(torch.isfinite(w).all()) for w in state["weights"].values())
    done = command("replay", "run/failures/editgrpo-1", cwd=tmp_path)
    assert done.status == 0, done.err
    told_lines = done.out.splitlines()
    assert re.match(r"editgrpo, step 1: \d+ reports", told_lines[0])
    assert told_lines[1].startswith("weights: finite, at most")
    assert told_lines[-2].startswith("log-probabilities: finite, at most")
    if function == UPDATE:
        replay_of_a_stranger(tmp_path, done.out)
    done = command("rl", "--resume", "run", "rl.lr=0.001", cwd=tmp_path)
    assert done.status == 0, done.err
    assert [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "editgrpo"] == [0, 1, 2, 3]


def replay_of_a_stranger(place: Path, out: str) -> None:
    """Replay the batch of a run whose recipe names code, and see that none of it is imported."""
    shutil.copytree(place / "run", place / "theirs")
    (place / "theirs" / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    config = place / "theirs" / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["reward"]["terms"] = {"theirs.evil:reward": 1.0}
    settings["rollout"]["engine"] = "theirs.evil:engine"
    settings["rl"]["algorithm"] = "theirs.evil:layer"
    config.write_text(yaml.safe_dump(settings))
    done = command("replay", "theirs/failures/editgrpo-1", cwd=place)
    assert done.status == 0 and done.out == out, done.err
    settings["data"]["source"] = "theirs.evil:load"
    config.write_text(yaml.safe_dump(settings))
    done = command("replay", "theirs/failures/editgrpo-1", cwd=place)
    assert done.status == 2 and "write data.source=theirs.evil:load behind" in done.last
    assert not (place / "ran").exists()
    words = ["replay", "theirs/failures/editgrpo-1", "data.source=theirs.evil:load"]
    assert command(*words, cwd=place).status == 2 and (place / "ran").exists()


def test_nan_in_fine_tuning_and_a_replay_that_finds_it(tmp_path: Path) -> None:
    at = At("rrgtrain.train.sft:sft_loss", 3, "nan")
    done = command("sft", "--out", "run", *TINY_RUN, cwd=tmp_path, at=at)
    assert done.status == 2
    assert done.last.startswith("rrgtrain: sft, step 2: the loss is nan")
    directory = tmp_path / "run" / "failures" / "sft-2"
    kept = load_checkpoint(directory).state
    name = next(n for n in kept["weights"] if "language_model.layers.0.mlp.up_proj" in n)
    kept["weights"][name][3, 5] = float("inf")
    write_checkpoint(directory, kept)
    done = command("replay", "run/failures/sft-2", cwd=tmp_path)
    assert done.status == 0, done.err
    assert f"weights: not finite in 1 of {len(kept['weights'])}, first {name}" in done.out
    assert "layers.0.mlp.up_proj is the first module whose output is not finite" in done.out
    assert "log-probabilities: not finite in a report of phantom_train_" in done.out
    kept["batch"]["members"][1]["ids"][0] = 10**9
    write_checkpoint(directory, kept)
    done = command("replay", "run/failures/sft-2", cwd=tmp_path)
    assert done.status == 2 and "Traceback" not in done.err
    assert re.search(r"study phantom_train_\w+ in the batch has the token id 10{9}, and", done.last)
    kept["batch"]["members"][1]["study"] = "gone"
    write_checkpoint(directory, kept)
    done = command("replay", "run/failures/sft-2", cwd=tmp_path)
    assert done.status == 2 and "names study gone, which the data no longer has" in done.last


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("run/failures/none", "run/failures/none does not exist; name a directory RUN/fail"),
        (".", "holds no bat"),
    ],
)
def test_a_replay_of_nothing(path: str, told: str, tmp_path: Path) -> None:
    done = command("replay", path, cwd=tmp_path)
    assert done.status == 2 and told in done.last


# Of each step; the names of a step's sampler, gradients and judges are asked of where they arise.
NAMES = {"reward/total", "reward/match", "reward_sampled", "reward_edited", "report_tokens"}
NAMES |= {"scored_tokens", "zero_variance", "unfinished", "kl", "loss", "lr", "grad_norm"}
NAMES |= {"ratio_mean", "ratio_max", "clip_low", "clip_high"}


def test_every_step_says_what_it_did_and_how_fast_it_was() -> None:
    metrics = read_metrics(finished(*started())[0] / "metrics.jsonl")
    assert [row["step"] for row in metrics if row["phase"] == "editgrpo_val"] == [-1, 1, 3]
    steps = [row for row in metrics if row["phase"] == "editgrpo"]
    assert [row["step"] for row in steps] == [0, 1, 2, 3]
    assert all(math.isfinite(v) for row in steps for k, v in row.items() if k != "phase")
    row = steps[0]
    assert row.keys() >= NAMES and "tokens" not in row
    assert row["kl"] == pytest.approx(0.0, abs=1e-6) and steps[-1]["kl"] > row["kl"]
    assert row["ratio_mean"] == row["ratio_max"] == 1.0
    # short untrained reports: 10 tokens unless they ended; edits are longer
    assert 2 <= row["report_tokens"] <= row["scored_tokens"]
    assert row["entropy"] > 0 and 0 <= row["zero_variance"] <= 1
    phases = ("rollout", "edit", "reward", "update")
    assert all(row[f"seconds/{name}"] > 0 for name in phases)
    assert row["speed/generated_tokens"] > 0 and row["memory/peak_mib"] > 100
    assert row["speed/trained_tokens"] * row["seconds/update"] > row["scored_tokens"]
    assert "speed/flop_utilisation" not in row, "no peak is known for a CPU"
