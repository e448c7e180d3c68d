"""Run jobs in processes of their own until all have left their results.

A process gets a slice of time; what has not ended by then writes its checkpoint, ends with status
75 and is started again, ahead of what has not begun. So no process runs longer than a slice and
nothing is lost when this one is killed: the same command goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from experiments.jobs.job import Task
from experiments.jobs.results import finished
from rrgclinical.common.progress import Bar, progress
from rrgtrain.errors import Stopped, UserError
from rrgtrain.run.select_studies import RECORDS
from rrgtrain.state.rundir import RunDir

PAUSE = 0.2


class Process(Protocol):
    """Describe the process that the runner needs; `subprocess.Popen` gives it."""

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def wait(self) -> int: ...


AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass
class _Running(Generic[AnyTask]):
    task: AnyTask
    process: Process
    mark: tuple[str, ...]
    began: float


def run_tasks(
    tasks: Sequence[AnyTask],
    workers: int,
    launch: Callable[[AnyTask], Process],
    *,
    estimate: Callable[[AnyTask], float],
    pause: float = PAUSE,
    tell: Callable[[str], None] = print,
) -> None:
    """Runs every task without a result, those they need first.

    estimate: seconds of a task, for the bar.

    Raises UserError for a job that fails, or that a slice brings no further; Stopped when this
    process is asked to end, after its children have. What has finished stays in either case.
    """
    waiting = [task for task in tasks if not finished(task)]
    running: list[_Running[AnyTask]] = []
    costs = {task: estimate(task) for task in waiting}
    bar: Bar[int] = progress(round(sum(costs.values())), "estimated seconds")
    with bar:
        try:
            while waiting or running:
                for task in [t for t in waiting if _ready(t)][: workers - len(running)]:
                    waiting.remove(task)
                    running.append(_Running(task, launch(task), _mark(task), time.monotonic()))
                    tell(f"{time.strftime('%H:%M:%S')} begin {task.label}")
                if not running:
                    raise ValueError(f"{waiting[0].label} waits for a job that is not to run")
                ended = [(r, code) for r in running if (code := r.process.poll()) is not None]
                for one, code in ended:
                    running.remove(one)
                    if _ended(one, code, time.monotonic() - one.began, tell):
                        bar.advance(round(costs[one.task]))
                    else:
                        waiting.insert(0, one.task)
                if not ended:
                    time.sleep(pause)
        finally:
            for one in running:
                one.process.terminate()
            for one in running:
                one.process.wait()


def _ready(task: Task) -> bool:
    return all(finished(task.other(name)) for name in task.job.needs)


def _ended(one: _Running[AnyTask], code: int, took: float, tell: Callable[[str], None]) -> bool:
    """Tell that the job is done, or False for one that goes on in another slice."""
    task = one.task
    if code == 0 and finished(task):
        tell(f"{time.strftime('%H:%M:%S')} done  {task.label} ({took:.0f} s)")
        return True
    if code == Stopped.status:
        if _mark(task) == one.mark:
            raise UserError(
                f"{task.label}: {took:.0f} s brought it no further; give more time by --slice "
                f"(see {task.log})"
            )
        tell(f"{time.strftime('%H:%M:%S')} pause {task.label} ({took:.0f} s)")
        return False
    raise UserError(
        f"{task.label} ended with status {code}: {_last_line(task)} (see {task.log}); the same "
        "command goes on where it stopped"
    )


def _mark(task: Task) -> tuple[str, ...]:
    """Changes whenever the job has come further."""
    kept, sampled = RunDir(task.directory).resume, task.directory / RECORDS
    names = sorted(path.name for path in kept.iterdir()) if kept.is_dir() else []
    return (*names, str(sampled.stat().st_size if sampled.is_file() else 0))


def _last_line(task: Task) -> str:
    lines = task.log.read_text(errors="replace").strip().splitlines() if task.log.exists() else []
    return lines[-1] if lines else "it said nothing"
