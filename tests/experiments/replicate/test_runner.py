"""The scheduler with processes that are played: order, slices, kills between jobs, failures."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.replicate import runner
from experiments.replicate.jobs import Task, with_needs
from experiments.replicate.results import finished
from experiments.replicate.runner import run_tasks
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


def test_a_slice_goes_on_before_anything_new_begins(tmp_path, monkeypatch) -> None:
    stage, lines = Stage({"sft": [75, 75]}), []
    clock = itertools.count(0, 10.0)
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    tasks = tasks_for("editgrpo", tmp_path, (0, 1))
    seconds = run_tasks(tasks, 1, stage, pause=0, tell=lines.append)
    assert stage.begun == ["data", "data", "sft", "sft", "sft", "sft", "editgrpo", "editgrpo"]
    assert [line.split()[1] for line in lines].count("pause") == 2
    assert list(seconds.values()) == [10, 10, 30, 10, 10, 10], "of all slices together"


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
