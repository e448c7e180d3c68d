"""Whole runs on two ranks: they end where one process ends, and stop and go on together."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.runs import At, Done, command, differences, finished, on_ranks, rows, weights

# Three groups on two ranks: one has two of them, the other one.
RUN = [
    *("rl", "--from", "tiny", "--out", "run", *OF_PHANTOM, *SMALL_POLICY),
    *("rl.steps=3", "rl.prompts=3", "rl.group=4", "rl.max_new_tokens=10", "rl.eval_every=3"),
    *("rl.lr=0.001", "rl.beta=0.01", "eval.limit=3", "eval.max_new_tokens=10"),
    *("eval.bootstrap=20", "eval.samples=2", "checkpoint.steps=1", "deterministic=true"),
    "eval.meteor=false",
]

# Draws from every rank's own generator, and an oracle whose weight follows what prompts earned.
ADAPTER = [
    *("policy.lora.rank=2", "policy.lora.dropout=0.3", "rl.algorithm=dr_grpo+orapo"),
    *("rl.prompts=2", "oracle.high=0.9", "reward.terms={match: 1.0}"),
]


def started(home: Path, *more: str, at: At | None = None) -> list[Done]:
    return on_ranks(*RUN, "scale.mode=fsdp2", *more, cwd=home, at=at)


@pytest.fixture(scope="module")
def alone() -> Path:
    return finished(*RUN)[0]


def close(one: Path, two: Path) -> None:
    """To rounding: what three steps of Adam, which divides by the gradient's size, make of it."""
    start = load_file(one / "init" / "model.safetensors")
    left, right = weights(one), weights(two)
    assert left.keys() == right.keys()
    moved = apart = 0.0
    for name, value in left.items():
        before = start[name.partition(":")[2]]
        moved += float((value - before).double().square().sum())
        apart += float((right[name] - value).double().square().sum())
    assert moved > 0
    assert apart <= 1e-6 * moved, (apart, moved)
    assert len(rows(one)) == len(rows(two))
    for a, b in zip(rows(one), rows(two), strict=True):
        assert a["phase"] == b.pop("phase")
        of_rank_0 = ("reward_seconds/", "texts/", "phase")
        for name, value in a.items():
            if name.startswith(of_rank_0):
                continue
            assert b[name] == pytest.approx(value, rel=1e-3, abs=1e-4), (a["step"], name)


def test_what_fails_on_one_rank_stops_both_and_they_go_on(tmp_path: Path) -> None:
    """A reward, then a loss that is NaN, whose batch is kept."""
    undisturbed, failing = tmp_path / "undisturbed", tmp_path / "failing"
    done = started(undisturbed, *ADAPTER)
    assert [d.status for d in done] == [0, 0], done[0].err + done[1].err
    assert done[1].out + done[1].err == ""
    at = At("rrgtrain.train.batch:Batch.of_all_ranks", 2, "reward")
    done = started(failing, *ADAPTER, at=at)
    assert [d.status for d in done] == [75, 75]
    assert "dr_grpo+orapo, step 1, rank 1: reward term facts failed" in done[0].last
    assert "go on with: torchrun --nproc-per-node 2 -m rrgtrain rl --resume run" in done[0].last
    assert done[1].err == ""
    at = At("rrgtrain.train.gradients:policy_loss", 1, "nan")
    done = on_ranks("rl", "--resume", "run", cwd=failing, at=at)
    assert [d.status for d in done] == [2, 2]
    assert "rank 1: the policy loss is nan" in done[0].last
    assert "rrgtrain replay run/failures/dr_grpo.orapo-1" in done[0].last
    assert done[1].err == ""
    shutil.rmtree(failing / "run" / "failures")
    done = on_ranks("rl", "--resume", "run", cwd=failing)
    assert [d.status for d in done] == [0, 0], done[0].err
    assert differences(undisturbed / "run", failing / "run") == []
    saved = weights(failing / "run")
    assert {n.rsplit(".", 2)[1] for n in saved} == {"lora_A", "lora_B"}, "nothing of the base"
    assert any(w.any() for n, w in saved.items() if ".lora_B." in n), "it has learnt"


def test_a_signal_to_one_rank_stops_both_and_one_process_goes_on(
    alone: Path, tmp_path: Path
) -> None:
    done = started(tmp_path, at=At("rrgtrain.train.rl:sample_groups", 3))
    assert [d.status for d in done] == [75, 75]
    assert "stopped by SIGTERM after 2 steps of editgrpo" in done[0].last
    more = command("rl", "--resume", "run", "scale.mode=none", cwd=tmp_path)
    assert more.status == 0, more.err
    close(alone, tmp_path / "run")


def test_torchrun_and_the_recipe_must_agree(tmp_path: Path) -> None:
    done = on_ranks(*RUN, cwd=tmp_path)
    assert [d.status for d in done] == [2, 2]
    assert done[0].last.startswith(
        "rrgtrain: torchrun has started 2 processes, but scale.mode=none is one alone; use "
    )
    assert done[1].err == ""
    lonely = command(*RUN, "scale.mode=fsdp2", cwd=tmp_path)
    assert lonely.status == 2
    assert "scale.mode=fsdp2 spreads over the processes of torchrun, and this is one" in lonely.last
    assert not (tmp_path / "run").exists()


# Ranks wait for what rank 0 does alone, however long it takes.
def test_ranks_wait_for_rank_0_beyond_their_timeout(tmp_path: Path) -> None:
    done = on_ranks(cwd=tmp_path, main="tests.rrgtrain.run.main_suite")
    assert [d.status for d in done] == [0, 0], [d.err for d in done]
    assert [d.out for d in done] == ["the scorecard cannot be written\n"] * 2


# A whole run on two nodes of two ranks, one of which is killed: it goes on as one process's.
def test_a_killed_rank_is_named_on_both_nodes_and_the_run_ends_where_one_process_ends(
    tmp_path: Path,
) -> None:
    # the last rank, on the second node; rank 0 learns of it through torchrun's store
    at = At("rrgtrain.train.batch:Batch.of_all_ranks", 3, "SIGKILL")
    lost = on_nodes(*RUN, "scale.mode=fsdp2", cwd=tmp_path, at=at)
    assert [d.status for d in lost] == [75, 75, 75, -9], [d.err for d in lost]
    host = re.escape(socket.gethostname())
    wanted = (
        # torchrun may have taken it away before anybody has read how it ended
        rf"rrgtrain: another rank is gone \(rank 3, process \d+ on {host}, (?:killed by SIGKILL, "
        r"as the kernel does where memory runs out|ended)\) after 2 steps of editgrpo; .* "
        r"go on with: "
        r"torchrun --nnodes 2 \.\.\. --nproc-per-node 2 -m rrgtrain rl --resume run"
    )
    assert re.fullmatch(wanted, lost[0].last), lost[0].err
    said = [line for d in lost for line in d.err.splitlines() if "is gone" in line]
    assert said == [lost[0].last], "one rank tells it"
    assert not any("Traceback" in d.err for d in lost)
    ended = on_nodes("rl", "--resume", "run", cwd=tmp_path)
    assert [d.status for d in ended] == [0] * 4, [d.err for d in ended]
    close(finished(*RUN)[0], tmp_path / "run")
