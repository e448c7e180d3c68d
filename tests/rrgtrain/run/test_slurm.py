"""The Slurm script says what it means, to stand-ins for Slurm's commands and for torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed.run import parse_args

from rrgclinical.common.stop import WARNINGS
from rrgtrain import cli
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe

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


def test_the_script_parses() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


def test_a_first_attempt_starts_the_run_and_the_next_resumes_it(cluster: Path) -> None:
    assert ended(submitted(cluster, DATA="/shared/mimic", IFACE="ib1")) == 0
    words, environment = asked(cluster)
    options = cli.understood(words)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    local = str(cluster / "scratch" / "rrgtrain-70123" / "data")
    assert (options.verb, options.out, options.start) == ("rl", Path("run"), "checkpoint")
    assert (recipe.scale.mode, recipe.rl.lr, recipe.data.root) == ("fsdp2", 1e-6, local)
    assert (cluster / "rsync.txt").read_text() == f"-a /shared/mimic/ {local}/\n"
    assert recipe.state.grace == 140.0
    assert recipe.state.grace < int(environment["stopped within"]) < told_before_the_end()
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
    options = cli.understood(words)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    assert recipe.state.grace == 25.0 < int(environment["stopped within"]) == 30


def test_the_time_limit_is_told_by_a_signal_that_every_rank_takes() -> None:
    assert told_by() in WARNINGS


@pytest.mark.parametrize("finished", [False, True])
def test_a_time_limit_stops_torchrun_and_asks_for_the_next_attempt(
    finished: bool, cluster: Path
) -> None:
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


def test_it_says_where_it_never_ran() -> None:
    for page in (SCRIPT, SCRIPT.with_name("gpus.md")):
        assert "ever run on GPUs, nor under Slurm" in page.read_text()
