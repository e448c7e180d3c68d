"""The command line: `python -m experiments.alarm`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rrgtrain.cli import Parser, reported
from rrgtrain.errors import UserError

RESULTS = Path(__file__).with_name("results.json")


def parser() -> Parser:
    """Build the parser of the options."""
    top = Parser(
        prog="python -m experiments.alarm",
        description="Runs that game their reward, and healthy ones, under the alarm.",
    )
    top.add_argument("--out", type=Path, default=Path("runs/alarm"), help="directory; resumes one")
    top.add_argument("--job", help="run this job alone; the jobs before it are there")
    top.add_argument(
        "--slice",
        type=float,
        metavar="SECONDS",
        help="end after this time, with all kept; the same command goes on",
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing; exit statuses are those of `rrgtrain.cli.main`."""
    return reported(lambda: _run(arguments), ends_process=arguments is None)


def _run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    # imported here: torch takes seconds that `--help` should not wait for
    from experiments.alarm.run import GAMES, HEALTHY, JOBS, AlarmTask, work
    from experiments.jobs.job import with_needs
    from experiments.jobs.results import Result, finished, stale
    from experiments.jobs.watch import stop_after

    if options.slice is not None:
        stop_after(options.slice)
    names = with_needs([options.job] if options.job else JOBS, JOBS)
    tasks = [AlarmTask(JOBS[name], 0, options.out) for name in names]
    if old := [why for task in tasks if (why := stale(task))]:
        raise UserError(f"{options.out} holds results of other settings ({old[0]}); name another")
    for task in tasks:
        if not finished(task):
            work(task)
        print(f"{task.label}: {task.result}", flush=True)
    if options.job:
        return 0
    results = {task.job.name: Result.load(task.result) for task in tasks}
    runs = {name: results[name].facts for name in (*GAMES, *HEALTHY)}
    RESULTS.write_text(json.dumps(runs, indent=0) + "\n")
    for name, facts in runs.items():
        print(name, *(facts["lines"] or ["no alarm"]), sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
