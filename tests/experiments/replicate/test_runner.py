"""The scheduler with processes that are played: order, slices, kills between jobs, failures."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.replicate import runner
from experiments.replicate.jobs import Task, with_needs
from experiments.replicate.results import finished
from experiments.replicate.runner import child, run_tasks
from rrgtrain.errors import UserError
from rrgtrain.state.rundir import RunDir
from tests.experiments.replicate.common import leave, task


def quiet(line: str) -> None:
    pass


@dataclass
class Played:
    """A process that ends at its first poll, having done `act`."""

    act: Callable[[], int]
    ended: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.act()

    def terminate(self) -> None:
        self.ended.append("terminate")

    def wait(self) -> int:
        self.ended.append("wait")
        return 0


@dataclass
class Stage:
    """Launches played jobs and remembers which, and how many ran at once."""

    scripts: dict[str, list[int]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)

    def __call__(self, one: Task) -> Played:
        self.begun.append(one.job.name)

        def act() -> int:
            script = self.scripts.get(one.job.name)
            code = script.pop(0) if script else 0
            if code == 0:
                leave(one)
            if code == 75:
                kept = RunDir(one.directory).resume
                kept.mkdir(parents=True, exist_ok=True)
                (kept / f"{len(list(kept.iterdir())):06d}-step").mkdir()
            return code

        return Played(act)


def tasks_for(name: str, out: Path, seeds: tuple[int, ...] = (0,)) -> list[Task]:
    return [task(n, seed, out) for n in with_needs([name]) for seed in seeds]


def test_each_job_runs_once_after_what_it_needs(tmp_path) -> None:
    stage = Stage()
    seconds = run_tasks(tasks_for("deer", tmp_path), 2, stage, pause=0, tell=quiet)
    assert stage.begun == ["data", "sft", "select", "deer"]
    assert [one.job.name for one in seconds] == stage.begun
    assert run_tasks(tasks_for("deer", tmp_path), 2, stage, pause=0, tell=quiet) == {}
    assert len(stage.begun) == 4, "what has finished is skipped"


def test_workers_are_kept_busy_and_never_exceeded(tmp_path) -> None:
    busy, most = [0], [0]

    class Counted(Stage):
        def __call__(self, one: Task) -> Played:
            made = super().__call__(one)
            busy[0] += 1
            most[0] = max(most[0], busy[0])
            inner, polls = made.act, [0]

            def later() -> int | None:
                polls[0] += 1
                if polls[0] < 3:
                    return None
                busy[0] -= 1
                return inner()

            made.act = later  # type: ignore[assignment]
            return made

    run_tasks(tasks_for("editgrpo", tmp_path, (0, 1, 2)), 2, Counted(), pause=0, tell=quiet)
    assert most == [2]


def test_a_slice_goes_on_before_anything_new_begins(tmp_path, monkeypatch) -> None:
    stage, lines = Stage({"sft": [75, 75]}), []
    clock = itertools.count(0, 10.0)
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    tasks = tasks_for("editgrpo", tmp_path, (0, 1))
    seconds = run_tasks(tasks, 1, stage, pause=0, tell=lines.append)
    assert stage.begun == ["data", "data", "sft", "sft", "sft", "sft", "editgrpo", "editgrpo"]
    assert [line.split()[1] for line in lines].count("pause") == 2
    assert list(seconds.values()) == [10, 10, 30, 10, 10, 10], "of all slices together"


def test_a_slice_without_progress_is_told(tmp_path) -> None:
    stage = Stage()
    stuck = Played(lambda: 75)
    leave(task("data", 0, tmp_path))
    with pytest.raises(UserError, match="sft of seed 0: 0 s brought it no further; give more"):
        run_tasks(tasks_for("sft", tmp_path), 1, lambda _: stuck, pause=0, tell=quiet)
    assert not stage.begun


def test_a_failure_names_the_job_ends_the_others_and_keeps_what_has_finished(tmp_path) -> None:
    leave(task("data", 0, tmp_path))
    made = task("sft", 0, tmp_path)
    made.log.write_text("some lines\nrrgtrain: sft, step 3: the loss is nan\n")
    endless = Played(lambda: None)  # type: ignore[arg-type, return-value]

    def launch(one: Task) -> Played:
        return Played(lambda: 2) if one.job.name == "sft" else endless

    both = [*tasks_for("sft", tmp_path), *tasks_for("sft_blocks", tmp_path)]
    with pytest.raises(UserError, match="sft of seed 0 ended with status 2: rrgtrain: sft, step 3"):
        run_tasks(list(dict.fromkeys(both)), 2, launch, pause=0, tell=quiet)
    assert endless.ended == ["terminate", "wait"]
    assert finished(task("data", 0, tmp_path)) and not finished(made)


def test_a_child_is_the_command_of_its_job(tmp_path, monkeypatch) -> None:
    given = {}

    def popen(words: list[str], **options: object) -> str:
        given.update(options, words=words)
        return "process"

    monkeypatch.setattr(runner.subprocess, "Popen", popen)
    assert child(task("sft", 3, tmp_path), 60.0) == "process"
    assert given["words"][1:] == [
        *("-m", "experiments.replicate", "--job", "sft", "--seeds", "3"),
        *("--out", str(tmp_path), "--slice", "60.0"),
    ]
    assert given["env"]["OMP_NUM_THREADS"] == "1" and given["start_new_session"]
    assert task("sft", 3, tmp_path).log.exists()


WATCHED = """
import signal, sys, time
from experiments.replicate.watch import stop_after
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
stop_after({seconds})
print("ready", flush=True)
time.sleep(300)
"""


def test_a_process_ends_itself_after_its_slice_or_its_parent() -> None:
    path = os.pathsep.join([str(Path(runner.__file__).parents[2]), *sys.path])
    given = {"timeout": 300, "env": {**os.environ, "PYTHONPATH": path}}
    own = subprocess.run([sys.executable, "-c", WATCHED.format(seconds=0.2)], check=False, **given)
    assert own.returncode == 75
    # a parent that starts the watched process, waits until it is watched, and is gone
    parent = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {WATCHED.format(seconds=None)!r}], "
        "stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print(p.pid, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", parent], capture_output=True, text=True, check=True, **given
    )
    orphan = int(done.stdout)
    for _ in range(600):
        if _gone(orphan):
            break
        time.sleep(0.1)
    assert _gone(orphan)


def _gone(process: int) -> bool:
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True
