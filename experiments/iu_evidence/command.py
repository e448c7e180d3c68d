"""Do what the command line asks for."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.iu_evidence.arms import ARMS, JUDGED_FOLDS, Hypothesis, claims_of, with_needs
from experiments.iu_evidence.cost import clock, planned, seconds_of, wall_seconds
from experiments.iu_evidence.data import DEVELOPMENT, FOLDS
from experiments.iu_evidence.packed import read_packed, unpacked, write_packed
from experiments.iu_evidence.report import results_of, told
from experiments.iu_evidence.run import child, work
from experiments.iu_evidence.tasks import COMMAND, FoldTask, tasks_of
from experiments.jobs.results import Result, finished, stale
from experiments.jobs.runner import run_tasks
from experiments.jobs.watch import stop_after
from experiments.threads import threads_of_environment
from rrgclinical.common.files import atomic_write
from rrgtrain.errors import Stopped, UserError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
QUICK_ARMS = ("editgrpo", "oracle_1", "select")
QUICK_NOTE = "--quick: studies, policy and steps too few to learn anything; it claims nothing."


def run(options: argparse.Namespace) -> None:
    """Do what the options ask for.

    Raises UserError for bad input and a job that fails; Stopped where it was asked to end.
    """
    out = options.out or Path("runs/iu_evidence-quick" if options.quick else "runs/iu_evidence")
    folds = tuple(options.folds or ((DEVELOPMENT,) if options.quick else JUDGED_FOLDS))
    if bad := [fold for fold in folds if not 0 <= fold < FOLDS]:
        raise UserError(f"--folds {bad[0]}; give folds of 0 to {FOLDS - 1}")
    if options.workers < 1:
        raise UserError(f"--workers {options.workers}; give at least 1")
    claims = claims_of(options.claims)
    if options.report:
        with unpacked(options.report) as results:
            print("\n".join(reported(claims, results, folds)))
            if options.figures:
                _draw(results, options.figures, folds)
        return
    if options.figures:
        raise UserError("--figures draws results that are there; name their directory by --report")
    root = options.data or Path(os.environ.get("RRG_DATA", ROOT.parent / "shared/data")) / "iu_xray"
    if options.job is not None:
        _one_job(options, out, folds, root)
        return
    kept = options.keep or RESULTS / "judged.jsonl.gz"
    rows = planned(claims, out, options.budget * 3600)
    tasks = _tasks(options, [claim for claim, _, fits in rows if fits], folds, out)
    if options.keep:
        _go_on(tasks, read_packed(kept))
    for line in _estimate(rows, tasks, options):
        print(line)
    if options.estimate:
        return
    if not (root / "annotation.json").is_file():
        raise UserError(f"no IU X-Ray reports at {root}; give their directory by --data")
    if old := [why for task in tasks if (why := stale(task)) is not None]:
        raise UserError(
            f"{out} holds results of other settings or versions ({old[0]}); name another --out"
        )
    if options.quick:
        for task in tasks:
            if not finished(task):
                work(task, root, options.device)
                print(f"{task.label}: {task.result}")
        return
    words = ["--data", str(root), "--device", options.device, "--slice", str(options.slice)]
    try:
        run_tasks(tasks, options.workers, lambda t: child(t, words), estimate=seconds_of)
    except Stopped as stopped:
        stopped.args = (f"{stopped}; the same command goes on",)
        raise
    finally:
        _keep(tasks, kept)
    print("\n".join(reported(claims, out, folds)))


def reported(claims: Sequence[Hypothesis], out: Path, folds: Sequence[int]) -> list[str]:
    """The report of the claims from the results beneath `out`, with what is of development."""
    lines = ["# The papers' claims on IU X-Ray through noisy evidence", ""]
    if DEVELOPMENT in folds:
        lines += [f"Fold {DEVELOPMENT} is of development: nothing here is a verdict.", ""]
    count = sum(len(claim.checks) for claim in claims)
    lines += [f"{count} checks, without a correction for their number.", ""]
    for claim in claims:
        own = [fold for fold in claim.folds if fold in folds] or list(folds)
        lines += [*told(claim, results_of(claim, out, own, quick=False)), ""]
    return lines


def _draw(out: Path, directory: Path, folds: Sequence[int]) -> None:
    """Draw the arms of `rl`, `edits` and their follow-up, as far as these have run."""
    # Imported here: pages and their charts, which no run needs.
    from experiments.iu_evidence.figures import draw

    shown: dict[str, Sequence[Result]] = {}
    for claim in claims_of(["rl", "edits", "rl_by_reward", "edits_by_reward"]):
        shown |= results_of(claim, out, folds, quick=False) or {}
    if not shown:
        raise UserError(f"{out} has no whole claim of folds {folds}; run --claims rl first")
    for path in draw(shown, directory):
        print(f"drawn: {path}")


def _tasks(
    options: argparse.Namespace, claims: Sequence[Hypothesis], folds: Sequence[int], out: Path
) -> list[FoldTask]:
    if options.quick or options.arms:
        names = with_needs(options.arms or QUICK_ARMS)
        return [t for fold in folds for t in tasks_of(names, fold, out, quick=options.quick)]
    ordered = {
        task: None
        for claim in claims
        for fold in folds
        if fold in (*claim.folds, DEVELOPMENT)
        for task in tasks_of(claim.jobs(), fold, out, quick=False)
    }
    return list(ordered)


def _estimate(
    rows: Sequence[tuple[Hypothesis, float, bool]],
    tasks: Sequence[FoldTask],
    options: argparse.Namespace,
) -> list[str]:
    if options.quick:
        return [QUICK_NOTE]
    lines = []
    if not options.arms:
        lines = [f"budget {options.budget:g} core-hours of one CPU thread, claims in their order:"]
        for claim, added, fits in rows:
            lines.append(f"  {claim.name:<11} {clock(added):>11}  {'' if fits else 'not run'}")
    costs = [seconds_of(task) for task in tasks if not finished(task)]
    wall = clock(wall_seconds(costs, options.workers))
    ready = len(tasks) - len(costs)
    lines.append(
        f"{len(costs)} jobs to run, {ready} finished before: about {clock(sum(costs))} on one CPU "
        f"thread, {wall} with {options.workers} workers; a GPU has no measured rate"
    )
    return lines


def _one_job(options: argparse.Namespace, out: Path, folds: tuple[int, ...], root: Path) -> None:
    with_needs([options.job])
    if len(folds) != 1:
        raise UserError(f"--job {options.job} is of one fold; name it by --folds")
    task = FoldTask(ARMS[options.job], folds[0], out, options.quick)
    if missing := [name for name in task.job.needs if not finished(task.other(name))]:
        raise UserError(
            f"{task.label} needs {missing[0]}, which has not run in {out}; run "
            f"{COMMAND} --job {missing[0]} --folds {task.seed} --out {out} first"
        )
    if why := stale(task):
        raise UserError(f"{out} holds results of other settings or versions ({why})")
    if finished(task):
        print(f"{task.label} has finished: {task.result}")
        return
    stop_after(options.slice)
    with threads_of_environment():
        work(task, root, options.device)
    print(f"{task.label}: {task.result}")


def _go_on(tasks: Sequence[FoldTask], kept: Mapping[str, Any]) -> None:
    """Put back the results of each fold that is whole; another begins anew with its start."""
    lacking = {t.seed for t in tasks if _place(t) not in kept}
    for task in tasks:
        if task.seed not in lacking and not finished(task):
            task.home.mkdir(parents=True, exist_ok=True)
            atomic_write(task.result, json.dumps(kept[_place(task)]) + "\n")


def _place(task: FoldTask) -> str:
    return f"fold{task.seed}/{task.result.name}"


def _keep(tasks: Sequence[FoldTask], judged: Path) -> None:
    """Add what has finished to the packed results, which are committed."""
    ended: dict[Path, dict[str, Any]] = {}
    for task in tasks:
        if finished(task):
            file = RESULTS / "dev.jsonl.gz" if task.seed == DEVELOPMENT else judged
            own = json.loads(task.result.read_text(encoding="utf-8"))
            ended.setdefault(file, {})[_place(task)] = own
    for file, results in ended.items():
        write_packed(file, read_packed(file) | results)
