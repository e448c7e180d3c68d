"""`rrgtrain report`: the page of a finished run, or one of several."""

from __future__ import annotations

import argparse
from pathlib import Path

from rrgtrain.commands.command import Command


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directory of a run")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page; default: report.html of the run, or compare.html of several",
    )


def _run(options: argparse.Namespace) -> int:
    from rrgreport.compare import draw_page

    draw_page(options.runs, options.out)
    return 0


COMMAND = Command(
    "report",
    "regenerate report.html of a run, or compare several on one page",
    _words,
    _run,
    needed={},
)
