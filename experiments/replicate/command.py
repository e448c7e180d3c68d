"""Runs the papers' claims in miniature, in resumable jobs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.replicate.claims import Claim, chosen_claims
from experiments.replicate.cost import clock, seconds_of, wall_seconds
from experiments.replicate.jobs import COMMAND, HEADLINE, JOBS, Task, with_needs
from experiments.replicate.outcome import Outcome, outcome_of
from experiments.replicate.page import write_page
from experiments.replicate.results import Result, finished, forget, stale
from experiments.replicate.runner import SLICE, child, run_tasks
from experiments.replicate.text import QUICK_NOTE, listing, spoken
from experiments.replicate.watch import stop_after
from experiments.replicate.work import work
from rrgclinical.common.files import atomic_write
from rrgreport.provenance import commit
from rrgtrain.errors import Stopped, UserError

SEEDS = (0, 1, 2)
PAGE, NUMBERS = "replicate.html", "replicate.json"
PHANTOMS = (
    "Procedural phantoms and a tiny policy, not patients: no number here is a clinical result."
)


def replicate(options: argparse.Namespace) -> None:
    """Runs what is missing, then writes the tables and the page.

    A claim that does not reproduce is a result and no error. Raises UserError for bad input,
    results of other settings, and a job that fails; Stopped where it was asked to end.
    """
    out = options.out or Path("runs/replicate-quick" if options.quick else "runs/replicate")
    seeds = tuple(options.seeds or (SEEDS[:1] if options.quick else SEEDS))
    if options.workers < 1:
        raise UserError(f"--workers {options.workers}; give at least 1")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(f"--seeds {' '.join(map(str, seeds))}; give different numbers from 0 on")
    if options.slice is not None and options.slice <= 0:
        raise UserError(f"--slice {options.slice:g}; give a number of seconds above 0")
    if options.job is not None:
        _one_job(options, out, seeds)
        return
    claims = chosen_claims(options.claims)
    names = with_needs(job for claim in claims for job in claim.jobs)
    tasks = [Task(JOBS[name], seed, out, options.quick) for name in names for seed in seeds]
    if options.quick:
        print(QUICK_NOTE)
    if options.list:
        print("\n".join(listing(claims, tasks)))
        _announce(tasks, options.workers)
        return
    _refuse_or_forget(tasks, again=options.again)
    _announce(tasks, options.workers)
    try:
        run_tasks(tasks, options.workers, lambda task: child(task, options.slice or SLICE))
    except Stopped as stopped:
        stopped.args = (f"{stopped}; go on with: {_command()}",)
        raise
    outcomes = judged(claims, out, seeds, quick=options.quick)
    notes = _notes(tasks, seeds, quick=options.quick)
    for lines in [*map(spoken, outcomes), notes]:
        print("\n" + "\n".join(lines))
    write_page(outcomes, out / PAGE, command=_command(), notes=notes)
    content = {"notes": notes, "claims": [outcome.as_json() for outcome in outcomes]}
    atomic_write(out / NUMBERS, json.dumps(content, indent=1) + "\n")
    print(f"\npage: {out / PAGE}")


def judged(
    claims: Sequence[Claim], out: Path, seeds: Sequence[int], *, quick: bool
) -> list[Outcome]:
    """The outcome of each claim from the results that lie in `out`."""
    results = {
        name: [Result.load(Task(JOBS[name], seed, out, quick).result) for seed in seeds]
        for name in dict.fromkeys(job for claim in claims for job in claim.jobs)
    }
    return [outcome_of(claim, results, tuple(seeds), quick=quick) for claim in claims]


def _one_job(options: argparse.Namespace, out: Path, seeds: tuple[int, ...]) -> None:
    with_needs([options.job])
    if len(seeds) != 1:
        raise UserError(f"--job {options.job} is of one seed; name it by --seeds")
    task = Task(JOBS[options.job], seeds[0], out, options.quick)
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


def _announce(tasks: Sequence[Task], workers: int) -> None:
    missing = [task for task in tasks if not finished(task)]
    kept = len(tasks) - len(missing)
    costs = [seconds_of(task) for task in missing]
    wall = wall_seconds(costs, workers)
    print(
        f"{len(missing)} jobs to run, {kept} finished before: about {clock(sum(costs))} on one "
        f"core, {clock(wall)} with {workers} worker{'s' if workers > 1 else ''} "
        "(an estimate; other machines are faster or slower)"
    )
    first = with_needs(HEADLINE)
    eight = [c for t, c in zip(missing, costs, strict=True) if t.job.name in first]
    if 0 < len(eight) < len(missing):
        print(f"the eight headline runs come first: {clock(wall_seconds(eight, workers))}")


def _notes(tasks: Sequence[Task], seeds: tuple[int, ...], *, quick: bool) -> list[str]:
    notes = [QUICK_NOTE] if quick else []
    notes.append(PHANTOMS)
    if len(seeds) == 1:
        notes.append("One seed: intervals are over studies alone.")
    commits = sorted({Result.load(task.result).commit or "unknown" for task in tasks})
    if commits != [commit() or "unknown"]:
        notes.append(f"Computed by commits {', '.join(commits)}; drawn by {commit() or 'unknown'}.")
    return notes


def _command() -> str:
    return shlex.join([*COMMAND.split(), *sys.argv[1:]])
