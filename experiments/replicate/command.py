"""Run every job small, in resumable processes, and print what has run."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.replicate.jobs import COMMAND, JOBS, Task, with_needs
from experiments.replicate.results import Result, finished, forget, stale
from experiments.replicate.runner import SLICE, child, run_tasks
from experiments.replicate.text import aligned
from experiments.replicate.watch import stop_after
from experiments.replicate.work import work
from rrgreport import numbers
from rrgtrain.errors import Stopped, UserError

NOTE = (
    "Phantoms, policies and steps too few to learn anything: it shows the machinery and claims "
    "nothing."
)
BEFORE = "finished before"


def replicate(options: argparse.Namespace) -> None:
    """Run what is missing, then print the table of jobs.

    Raises UserError for bad input, results of other settings, and a job that fails; Stopped where
    it was asked to end.
    """
    out = options.out or Path("runs/replicate")
    seeds = tuple(options.seeds or (0,))
    if options.workers < 1:
        raise UserError(f"--workers {options.workers}; give at least 1")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(f"--seeds {' '.join(map(str, seeds))}; give different numbers from 0 on")
    if options.slice is not None and options.slice <= 0:
        raise UserError(f"--slice {options.slice:g}; give a number of seconds above 0")
    if options.job is not None:
        _one_job(options, out, seeds)
        return
    tasks = [Task(job, seed, out) for job in JOBS.values() for seed in seeds]
    for task in tasks:
        task.recipe()  # one that does not exist is refused before anything runs
    print(NOTE)
    if options.list:
        rows = [[t.label, BEFORE if finished(t) else "to run", t.command] for t in tasks]
        print("\n".join(aligned([["job", "state", "command"], *rows], right=())))
        return
    _refuse_or_forget(tasks, again=options.again)
    try:
        seconds = run_tasks(tasks, options.workers, lambda t: child(t, options.slice or SLICE))
    except Stopped as stopped:
        stopped.args = (f"{stopped}; go on with: {_command()}",)
        raise
    print("\n".join(["", *table(tasks, seconds)]))


def table(tasks: Sequence[Task], seconds: Mapping[Task, float]) -> list[str]:
    """Lay out finished jobs as lines; those not in `seconds` had finished before."""
    rows = [["job", "kind", "recipe", "start", "steps", "seconds"]]
    for task in tasks:
        job, facts = task.job, Result.load(task.result).facts
        own = [task.label, job.kind, job.recipe, job.start, str(facts.get("steps", ""))]
        took = f"{seconds[task]:.0f}" if task in seconds else BEFORE
        rows.append([cell or numbers.MISSING for cell in (*own, took)])
    return aligned(rows, right=(4, 5))


def _one_job(options: argparse.Namespace, out: Path, seeds: tuple[int, ...]) -> None:
    with_needs([options.job])
    if len(seeds) != 1:
        raise UserError(f"--job {options.job} is of one seed; name it by --seeds")
    task = Task(JOBS[options.job], seeds[0], out)
    missing = next((n for n in task.job.needs if not finished(task.other(n))), None)
    if missing is not None:
        raise UserError(
            f"{task.label} needs {missing}, which has not run in {out}; run "
            f"{COMMAND} --job {missing} --seeds {task.seed} --out {out} first"
        )
    before = [task.other(name) for name in with_needs([options.job])]
    _refuse_or_forget(before, again=options.again)
    if finished(task):
        print(f"{task.label} has finished: {task.result}")
        return
    if options.slice is not None:
        stop_after(options.slice)
    work(task)
    print(f"{task.label}: {task.result}")


def _refuse_or_forget(tasks: Sequence[Task], *, again: bool) -> None:
    """No table mixes settings or versions."""
    old = [(task, why) for task in tasks if (why := stale(task)) is not None]
    if not old:
        return
    if not again:
        more = f", and {len(old) - 1} more jobs" if len(old) > 1 else ""
        raise UserError(
            f"{old[0][0].out} holds results of other settings or versions ({old[0][1]}{more}); "
            "name another --out, or compute those anew with --again"
        )
    for task, why in old:
        print(f"computed anew: {why}")
        forget(task)


def _command() -> str:
    return shlex.join([*COMMAND.split(), *sys.argv[1:]])
