"""NaN, signals and kills stop a run before it learns wrong, and it goes on to the same bits."""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rrgclinical.common.stop import WARNINGS
from rrgreport.run_files import read_metrics
from rrgtrain.state.store import load_checkpoint
from tests.chaos import killed
from tests.rrgpolicy.rollout.served import Served, Worker
from tests.rrgpolicy.test_vllm_worker import Frozen
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.run.test_scale_runs import RUN
from tests.rrgtrain.runs import TINY_RUN, At, command, finished, finished_demo, rows, started

UPDATE = "rrgtrain.train.gradients:policy_loss"
REWARD = "rrgtrain.rewards.service:RewardService.__call__"
GO_ON = ["rl", "--resume", "run"]


def test_nan_in_reinforcement_learning(tmp_path: Path) -> None:
    """In the loss, then behind the resume, which has no more to judge, in a reward."""
    words, kept = started("rl.token_budget=100000", "rl.beta=0"), tmp_path / "run/failures"
    for at, told in (
        (At(UPDATE, 2, "nan"), "the policy loss is nan; lower rl.lr"),
        (At(REWARD, 2, "nan"), "a reward of step 1 is not finite"),
    ):
        done = command(*words, cwd=tmp_path, at=at, status=2)
        assert done.last.startswith(f"rrgtrain: editgrpo, step 1: {told}"), done.err
        assert "; its batch is kept in run/failures/editgrpo-1; with other" in done.last
        assert done.last.endswith("rrgtrain rl --resume run rl.lr=...")
        assert [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "editgrpo"] == [0]
        state = load_checkpoint(kept / "editgrpo-1").state
        assert state["step"] == 1 and len(state["batch"]["members"]) >= 4
        before = load_checkpoint(sorted((tmp_path / "run" / "resume").iterdir())[-1]).state
        assert before["step"] == 1
        assert all(torch.equal(w, before["weights"][n]) for n, w in state["weights"].items())
        assert all(bool(torch.isfinite(w).all()) for w in state["weights"].values())
        shutil.rmtree(kept)
        words = GO_ON
    command(*GO_ON, "rl.lr=0.001", cwd=tmp_path, status=0)
    assert [r["step"] for r in rows(tmp_path / "run") if r["phase"] == "editgrpo"] == [0, 1, 2, 3]


def test_nan_in_fine_tuning(tmp_path: Path) -> None:
    at = At("rrgtrain.train.sft:sft_loss", 3, "nan")
    done = command("sft", "--out", "run", *TINY_RUN, cwd=tmp_path, at=at, status=2)
    assert done.last.startswith("rrgtrain: sft, step 2: the loss is nan")
    state = load_checkpoint(tmp_path / "run" / "failures" / "sft-2").state
    assert {m["origin"] for m in state["batch"]["members"]} == {"reference"}
    assert all(bool(torch.isfinite(w).all()) for w in state["weights"].values())


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


ROOT = Path(__file__).parents[3]
# As docs/slurm.sbatch has it.
(HANDLED,) = re.findall(r"--signals-to-handle (\S+)\"", (ROOT / "docs/slurm.sbatch").read_text())
WORDS = [*RUN, "scale.mode=fsdp2", "rl.steps=500", "rl.eval_every=500", "data.workers=1"]
STOPPED = (
    r"rrgtrain: stopped by SIGUSR1 after (\d+) steps of editgrpo; "
    r"go on with: torchrun --nproc-per-node 2 -m rrgtrain rl --resume run"
)


def until_it_trains(home: Path) -> None:
    metrics, last = home / "run" / "metrics.jsonl", time.monotonic() + 600
    while not metrics.exists() or '"step": 1' not in metrics.read_text():
        assert time.monotonic() < last
        time.sleep(0.05)


def stopped(home: Path, printed: str) -> None:
    """A rank says it, once, and what it has done is kept."""
    (steps,) = re.findall(STOPPED, printed)
    assert list((home / "run" / "resume").glob(f"*-{steps}")), printed


@pytest.mark.parametrize("alone", [True, False], ids=["torchrun", "every process"])
def test_a_signal_to_torchrun_alone_or_to_every_process_stops_the_run(alone, tmp_path):
    """As Slurm sends it; by `#SBATCH --signal=USR1@180` to the ranks and their readers too."""

    def tell(places: Sequence[Path]) -> None:
        until_it_trains(tmp_path)
        agent = psutil.Process(int((places[0] / "pid").read_text())).parent()
        assert agent is not None
        told = [agent, *agent.children(recursive=True)]
        readers = [process for process in told if process.name() == "pt_data_worker"]
        assert readers and len(told) - len(readers) >= 3, "torchrun, two ranks, and a reader"
        for process in told[:1] if alone else told[::-1]:
            process.send_signal(signal.SIGUSR1)

    more = ["--signals-to-handle", HANDLED, "--shutdown-timeout", "300"]
    done = on_nodes(*WORDS, cwd=tmp_path, nodes=1, disturb=tell, more=more, statuses=[75, 75])
    stopped(tmp_path, "".join(d.err for d in done))


def test_a_program_beside_a_rank_ends_with_its_input_alone() -> None:
    program = ROOT / "python/rrgclinical/official/worker.py"
    words = [sys.executable, "-P", str(program)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    answers = []
    for number in (None, *WARNINGS, signal.SIGINT, signal.SIGHUP):
        if number is not None:
            child.send_signal(number)
        child.stdin.write(b'{"call": "none", "arguments": {}}\n')
        child.stdin.flush()
        answers.append(child.stdout.readline())
    child.communicate()
    assert child.returncode == 0 and len(set(answers)) == 1 and answers[0]


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_killed_run_ends_as_if_it_had_been_left_alone(share: float, tmp_path: Path) -> None:
    run, seconds = finished_demo()
    # a process may be far faster than the one that was measured, on a machine that was busy then
    for earlier in (1.0, 0.8, 0.6, 0.4, 0.2, 0.1):
        trial = killed(tmp_path / str(earlier), [earlier * share * seconds], run)
        assert trial.differences == []
        if trial.phases:
            return
    pytest.fail("every kill came too late to hit anything")


class Deceived(Frozen):
    """Its weights stay behind, and it does not know."""

    def weights_taken(self) -> dict[str, Any]:
        return {**super().weights_taken(), "held": None}


def test_a_server_that_keeps_old_weights_stops_the_run_which_goes_on_with_a_sound_one(tmp_path):
    served = Served(finished_demo()[0] / "checkpoints" / "sft")
    served.workers = Frozen
    with served:
        words = started("rl.algorithm=dr_grpo", "rl.steps=6", "rollout.engine=vllm_server")
        words += [f"rollout.url={served.url}", "rollout.wait=60"]
        made, phase = 0, "dr_grpo"
        for said, then in (
            ("vLLM at .* was given the weights of step 1 and computes with those of .*", Deceived),
            ("trainer and sampler differ by .* likely weights that the sampler has not", Worker),
        ):
            done = command(*words, cwd=tmp_path, status=75)
            stopped = re.match(rf"rrgtrain: dr_grpo, step (\d): {said}", done.last)
            assert stopped and int(stopped[1]) in (made + 1, made + 2), done.err
            assert "rrgtrain rl --resume run" in done.last
            made, words = int(stopped[1]), GO_ON
            steps = [r["step"] for r in rows(tmp_path / "run") if r["phase"] == phase]
            assert steps == list(range(made))
            served.stop()
            served.workers = then
            served.start()
        command(*GO_ON, cwd=tmp_path, status=0)
    steps = [r["step"] for r in rows(tmp_path / "run") if r["phase"] == phase]
    assert steps == list(range(6))
