"""The command line of the smoke test: `python -m experiments.replicate --list`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rrgtrain.cli import Parser, reported


def parser() -> Parser:
    """Build the parser of the options."""
    top = Parser(
        prog="python -m experiments.replicate",
        description="Every job of the papers' methods, small, on phantoms; it claims nothing.",
    )
    top.add_argument(
        "--out", type=Path, help="directory of the results; resumes one; default: runs/replicate"
    )
    top.add_argument("--seeds", type=int, nargs="+", help="seeds; default: 0 alone")
    top.add_argument("--workers", type=int, default=2, help="jobs at a time, one thread each")
    top.add_argument("--list", action="store_true", help="print jobs and commands; run nothing")
    top.add_argument(
        "--again", action="store_true", help="recompute what other settings left in --out"
    )
    top.add_argument("--job", help="run this job alone, with one seed, in this process")
    top.add_argument(
        "--slice",
        type=float,
        metavar="SECONDS",
        help="time after which a job writes its checkpoint and starts again; default: 480",
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs; exit statuses are those of `rrgtrain.cli.main`."""
    return reported(lambda: _run(arguments), ends_process=arguments is None)


def _run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    # imported here: its tables take a second that `--help` should not wait for
    from experiments.replicate.command import replicate

    replicate(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
