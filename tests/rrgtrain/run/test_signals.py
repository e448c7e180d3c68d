"""Signals as batch systems send them: to torchrun alone, or to every process of a job."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from rrgclinical.common.stop import WARNINGS
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.run.test_scale_runs import RUN
from tests.rrgtrain.runs import At, command, differences, finished, started

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
def test_a_signal_to_torchrun_alone_or_to_every_process_stops_the_run(
    alone: bool, tmp_path: Path
) -> None:
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
    done = on_nodes(*WORDS, cwd=tmp_path, nodes=1, disturb=tell, more=more)
    assert [d.status for d in done] == [75, 75], [d.err for d in done]
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


# Check whole runs that end while a checkpoint is written, or without the time for one.
DISK = "torch.distributed.checkpoint.filesystem:FileSystemWriter.write_data"
SAMPLE = "rrgtrain.train.rl:sample_groups"
GO_ON = ["rl", "--resume", "run"]


@pytest.fixture(scope="module")
def alone() -> Path:
    return finished(*started())[0]


def test_a_kill_or_a_second_interrupt_while_one_is_written(alone: Path, tmp_path: Path) -> None:
    done = command(*started(), cwd=tmp_path, at=At(DISK, 3, "SIGKILL"))
    assert done.status == -9
    resume = tmp_path / "run" / "resume"
    assert any(p.name.startswith(".") for p in resume.iterdir()), "it was being written"
    done = command(*GO_ON, cwd=tmp_path, at=At(DISK, 2, "SIGINT+sleep+SIGINT+sleep"))
    assert done.status == 130 and done.last == "rrgtrain: interrupted", done.err
    done = command(*GO_ON, cwd=tmp_path)
    assert done.status == 0, done.err
    assert differences(alone, tmp_path / "run") == []


def test_a_stop_without_grace_goes_on_from_the_last_checkpoint(alone: Path, tmp_path: Path) -> None:
    words = started("checkpoint.steps=2", "state.grace=0")
    done = command(*words, cwd=tmp_path, at=At(SAMPLE, 4))
    assert done.status == 75
    assert "stopped by SIGTERM after 3 steps of editgrpo; no checkpoint was written: " in done.last
    assert "editgrpo-2, so 1 steps are lost; go on with: rrgtrain rl --resume run" in done.last
    done = command(*GO_ON, cwd=tmp_path)
    assert done.status == 0, done.err
    assert differences(alone, tmp_path / "run") == ["config.yaml"], "the two settings"
