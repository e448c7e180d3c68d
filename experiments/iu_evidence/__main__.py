"""The command line: `python -m experiments.iu_evidence --estimate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rrgtrain.cli import Parser, reported

BUDGET_HOURS, SLICE_SECONDS = 14.0, 480.0


def parser() -> Parser:
    """Build the parser of the options."""
    top = Parser(
        prog="python -m experiments.iu_evidence",
        description="The papers' claims on the reports of IU X-Ray, through noisy evidence.",
    )
    top.add_argument("--out", type=Path, help="directory of the jobs; default: runs/iu_evidence")
    top.add_argument("--data", type=Path, help="IU X-Ray's reports; default: RRG_DATA/iu_xray")
    top.add_argument("--folds", type=int, nargs="+", help="default: 1 2 3 4; 0 is development's")
    top.add_argument("--claims", nargs="+", metavar="CLAIM", help="names; default: all that fit")
    top.add_argument("--arms", nargs="+", metavar="ARM", help="run these arms, whatever the claims")
    top.add_argument(
        "--budget",
        type=float,
        default=BUDGET_HOURS,
        metavar="HOURS",
        help=f"core-hours; a claim beyond is not run; default: {BUDGET_HOURS:g}",
    )
    top.add_argument("--workers", type=int, default=2, help="jobs at a time; default: 2")
    top.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="device of each job; default: cpu"
    )
    top.add_argument(
        "--slice",
        type=float,
        default=SLICE_SECONDS,
        metavar="SECONDS",
        help=f"time after which a job starts again; default: {SLICE_SECONDS:g}",
    )
    top.add_argument("--estimate", action="store_true", help="print the estimate; run nothing")
    top.add_argument("--quick", action="store_true", help="try the machinery; proves no claim")
    top.add_argument("--report", type=Path, metavar="DIR", help="report results; run nothing")
    top.add_argument("--figures", type=Path, metavar="DIR", help="with --report: draw edits to DIR")
    top.add_argument(
        "--keep", type=Path, metavar="FILE", help="packed results: go on from its folds, add to it"
    )
    top.add_argument("--job", help="run this job alone, of one fold, in this process")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; exit statuses are those of `rrgtrain.cli.main`."""
    return reported(lambda: _run(arguments), ends_process=arguments is None)


def _run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    # imported here: torch takes a second that `--help` should not wait for
    from experiments.iu_evidence.command import run

    run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
