"""Whole runs on two ranks end where one process ends, and the Slurm script says what it means."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.distributed.run import parse_args

from rrgclinical.common.stop import WARNINGS
from rrgtrain import cli
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.runs import At, Done, command, differences, finished, on_ranks, rows, weights

SCRIPT = Path(__file__).parents[3] / "docs" / "slurm.sbatch"
STAND_INS = {
    "scontrol": '[ "$1" = show ] && printf "node-a\\nnode-b\\n" || echo "$@" >> scontrol.txt',
    # runs the command once, as the task of the first node
    "srun": 'while [ "$1" != bash ]; do shift; done; export SLURM_NODEID=0; exec "$@"',
    "rsync": 'echo "$@" >> rsync.txt',
    # says what it knows, or notes its words, then ends with $STATUS, or at SIGTERM
    "torchrun": (
        '[ "$1" = --help ] && echo "usage: torchrun $KNOWN" && exit\n'
        f"exec {sys.executable} -c '"
        "import json, os, signal, sys, time; "
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)); "
        'open("torchrun.tmp", "w").write(json.dumps([sys.argv[1:], dict(os.environ)])); '
        'os.rename("torchrun.tmp", "torchrun.json"); '
        'time.sleep(float(os.environ["HOLD"])); sys.exit(int(os.environ["STATUS"]))\' "$@"'
    ),
}
WORDS = ["rl", "editgrpo", "run", "--from", "checkpoint", "data.source=mimic_cxr", "rl.lr=1e-6"]
SHUTDOWN, SIGNALS = "--shutdown-timeout", "--signals-to-handle"


def told_before_the_end() -> int:
    """Seconds between Slurm's signal and the time limit."""
    (line,) = [x for x in SCRIPT.read_text().splitlines() if x.startswith("#SBATCH --signal=")]
    return int(line.rpartition("@")[2])


def told_by() -> signal.Signals:
    """The signal by which Slurm tells the time limit."""
    (line,) = [x for x in SCRIPT.read_text().splitlines() if x.startswith("#SBATCH --signal=B:")]
    return signal.Signals[f"SIG{line.partition('B:')[2].partition('@')[0]}"]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    for name, text in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
    return tmp_path


def submitted(cluster: Path, **more: str) -> subprocess.Popen[str]:
    job = {"SLURM_JOB_ID": "70123", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "64"}
    job |= {"SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_TMPDIR": str(cluster / "scratch")}
    job |= {"KNOWN": f"[{SHUTDOWN} SECONDS] [{SIGNALS} NAMES]", "HOLD": "0", "STATUS": "0"}
    job |= {"PATH": f"{cluster / 'bin'}:{os.environ['PATH']}"}
    (cluster / "torchrun.json").unlink(missing_ok=True)
    return subprocess.Popen(
        ["bash", str(SCRIPT), *WORDS],
        cwd=cluster,
        env={**os.environ, **job, **more},
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(job: subprocess.Popen[str]) -> int:
    _, errors = job.communicate(timeout=600)
    assert errors == ""
    return job.returncode


def asked(cluster: Path) -> tuple[list[str], dict[str, str]]:
    """The words of rrgtrain, once torchrun's are understood, and the environment."""
    words, environment = json.loads((cluster / "torchrun.json").read_text())
    environment["stopped within"] = "30"  # torchrun's own, where it takes no other
    if SHUTDOWN in words:
        at = words.index(SHUTDOWN)
        environment["stopped within"] = words[at + 1]
        del words[at : at + 2]
    options = parse_args(words)
    if SIGNALS in words:
        assert {s.name for s in WARNINGS} <= set(options.signals_to_handle.split(","))
    assert (options.nnodes, options.nproc_per_node, options.module) == ("2", "gpu", True)
    assert options.training_script == "rrgtrain"
    assert (options.rdzv_backend, options.rdzv_endpoint) == ("c10d", "node-a:30123")
    assert options.rdzv_conf == "is_host=true"
    environment["id"] = options.rdzv_id
    return options.training_script_args, environment


def test_a_first_attempt_starts_the_run_and_the_next_resumes_it(cluster: Path) -> None:
    assert ended(submitted(cluster, DATA="/shared/mimic", IFACE="ib1")) == 0
    words, environment = asked(cluster)
    options = cli.understood(words)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    local = str(cluster / "scratch" / "rrgtrain-70123" / "data")
    assert (options.verb, options.out, options.start) == ("rl", Path("run"), "checkpoint")
    assert (recipe.scale.mode, recipe.rl.lr, recipe.data.root) == ("fsdp2", 1e-6, local)
    assert (cluster / "rsync.txt").read_text() == f"-a /shared/mimic/ {local}/\n"
    assert 140 < int(environment["stopped within"]) < told_before_the_end()
    assert environment["NCCL_SOCKET_IFNAME"] == environment["GLOO_SOCKET_IFNAME"] == "ib1"
    assert environment["XDG_CACHE_HOME"].startswith(str(cluster / "scratch"))
    (cluster / "run").mkdir()
    (cluster / "run" / "config.yaml").write_text("")
    again = submitted(cluster, DATA="/shared/mimic", SLURM_RESTART_COUNT="1")
    assert ended(again) == 0
    words, other = asked(cluster)
    assert environment["id"] != other["id"]
    options = cli.understood(words)
    assert (options.verb, options.resume) == ("rl", Path("run"))
    assert options.overrides == [f"data.root={local}"]
    assert not (cluster / "scontrol.txt").exists()


def test_an_older_torchrun_is_given_no_option_it_lacks(cluster: Path) -> None:
    assert ended(submitted(cluster, KNOWN="[--max-restarts N]")) == 0
    words, environment = asked(cluster)
    assert int(environment["stopped within"]) == 30 and cli.understood(words).verb == "rl"


@pytest.mark.parametrize("finished", [False, True])
def test_a_time_limit_stops_torchrun_and_asks_for_the_next_attempt(finished, cluster):
    job = submitted(cluster, HOLD="600")
    until = time.monotonic() + 300
    while not (cluster / "torchrun.json").exists() and time.monotonic() < until:
        time.sleep(0.02)
    if finished:  # the report came while the signal was on its way
        (cluster / "run").mkdir()
        (cluster / "run" / "report.html").write_text("")
    job.send_signal(signal.SIGTERM if finished else told_by())
    assert ended(job) == 1
    requeued = cluster / "scontrol.txt"
    assert finished != requeued.exists()
    assert finished or requeued.read_text() == "requeue 70123\n"


def test_a_step_that_ends_within_the_trap_gives_its_own_status(cluster: Path) -> None:
    slow = cluster / "slow.sh"  # the step has ended before the trap has
    slow.write_text('kill() { builtin kill "$@"; local status=$?; sleep 2; return $status; }\n')
    job = submitted(cluster, HOLD="600", BASH_ENV=str(slow))
    until = time.monotonic() + 300
    while not (cluster / "torchrun.json").exists() and time.monotonic() < until:
        time.sleep(0.02)
    job.send_signal(told_by())
    assert ended(job) == 1
    assert (cluster / "scontrol.txt").read_text() == "requeue 70123\n"


def test_an_error_is_not_tried_again(cluster: Path) -> None:
    assert ended(submitted(cluster, STATUS="1")) == 1
    assert not (cluster / "scontrol.txt").exists()


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


def started(home: Path, *more: str, at: At | None = None, status: int = 75) -> list[Done]:
    return on_ranks(*RUN, "scale.mode=fsdp2", *more, cwd=home, at=at, statuses=[status] * 2)


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
    done = started(undisturbed, *ADAPTER, status=0)
    assert done[1].out + done[1].err == ""
    at = At("rrgtrain.train.batch:Batch.of_all_ranks", 2, "reward")
    done = started(failing, *ADAPTER, at=at)
    assert "dr_grpo+orapo, step 1, rank 1: reward term facts failed" in done[0].last
    assert "go on with: torchrun --nproc-per-node 2 -m rrgtrain rl --resume run" in done[0].last
    assert done[1].err == ""
    at = At("rrgtrain.train.gradients:policy_loss", 1, "nan")
    done = on_ranks("rl", "--resume", "run", cwd=failing, at=at, statuses=[2, 2])
    assert "rank 1: the policy loss is nan" in done[0].last
    assert "its batch is kept in run/failures/dr_grpo.orapo-1" in done[0].last
    assert done[1].err == ""
    shutil.rmtree(failing / "run" / "failures")
    on_ranks("rl", "--resume", "run", cwd=failing, statuses=[0, 0])
    assert differences(undisturbed / "run", failing / "run") == []
    saved = weights(failing / "run")
    assert {n.rsplit(".", 2)[1] for n in saved} == {"lora_A", "lora_B"}, "nothing of the base"
    assert any(w.any() for n, w in saved.items() if ".lora_B." in n), "it has learnt"


def test_a_signal_to_one_rank_stops_both_and_one_process_goes_on(tmp_path):
    done = started(tmp_path, at=At("rrgtrain.train.rl:sample_groups", 3))
    assert "stopped by SIGTERM after 2 steps of editgrpo" in done[0].last
    command("rl", "--resume", "run", "scale.mode=none", cwd=tmp_path, status=0)
    close(finished(*RUN)[0], tmp_path / "run")


AHEAD = ["rl.ahead=1", "rollout.engine=tests.rrgtrain.run.main_suite:build_beside"]


def test_one_step_ahead_a_resume_and_two_ranks_end_where_one_process_does(tmp_path: Path) -> None:
    """Alone to the bit; ranks, which resume too, to rounding."""
    whole, at = finished(*RUN, *AHEAD)[0], At("rrgtrain.train.rl:apply_step", 2)
    command(*RUN, *AHEAD, cwd=tmp_path, at=at, status=75)
    command("rl", "--resume", "run", cwd=tmp_path, status=0)
    assert differences(whole, tmp_path / "run") == []
    two = tmp_path / "two"
    started(two, *AHEAD, at=at)
    on_ranks("rl", "--resume", "run", cwd=two, statuses=[0, 0])
    close(whole, two / "run")


def test_torchrun_and_the_recipe_must_agree(tmp_path: Path) -> None:
    done = on_ranks(*RUN, cwd=tmp_path, statuses=[2, 2])
    assert done[0].last.startswith(
        "rrgtrain: torchrun has started 2 processes, but scale.mode=none is one alone; use "
    )
    assert done[1].err == ""
    lonely = command(*RUN, "scale.mode=fsdp2", cwd=tmp_path, status=2)
    assert "scale.mode=fsdp2 spreads over the processes of torchrun, and this is one" in lonely.last
    assert not (tmp_path / "run").exists()


# Ranks wait for what rank 0 does alone, however long it takes.
def test_ranks_wait_for_rank_0_beyond_their_timeout(tmp_path: Path) -> None:
    done = on_ranks(cwd=tmp_path, main="tests.rrgtrain.run.main_suite", statuses=[0, 0])
    assert [d.out for d in done] == ["the scorecard cannot be written\n"] * 2


# A whole run on two nodes of two ranks, one of which is killed: it goes on as one process's.
def test_a_killed_rank_is_told_and_the_run_ends_where_one_process_ends(tmp_path):
    at = At("rrgtrain.train.batch:Batch.of_all_ranks", 3, "SIGKILL")
    lost = on_nodes(*RUN, "scale.mode=fsdp2", cwd=tmp_path, at=at, statuses=[75, 75, 75, -9])
    wanted = (
        r"rrgtrain: another rank is gone \(.*; torchrun's report says which\) after 2 steps of "
        r"editgrpo; .* go on with: "
        r"torchrun --nnodes 2 \.\.\. --nproc-per-node 2 -m rrgtrain rl --resume run"
    )
    assert re.fullmatch(wanted, lost[0].last), lost[0].err
    said = [sum("is gone" in line for line in d.err.splitlines()) for d in lost]
    assert said[0] == 1 and max(said) == 1, "a line a process at most"
    assert not any("Traceback" in d.err for d in lost)
    on_nodes("rl", "--resume", "run", cwd=tmp_path, statuses=[0] * 4)
    close(finished(*RUN)[0], tmp_path / "run")
