"""`rrgtrain report`: the page of a finished run, or one of several."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
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
    return draw_page(options.runs, options.out)


def draw_page(paths: Sequence[Path], out: Path | None = None) -> int:
    """Write the page of a finished run, or one of several, and print its table."""
    from rrgreport.compare import write_comparison
    from rrgreport.html import draw
    from rrgreport.page import require_page
    from rrgreport.run_files import RunFiles
    from rrgreport.summary import RunSummary
    from rrgreport.table import print_summary

    if len(paths) > 1:
        out = out or Path("compare.html")
        summary = write_comparison(paths, out)
    else:
        run = RunFiles.open(paths[0])
        if out is not None:
            require_page(out)
        out = out or run.report
        summary = RunSummary.load(run.summary)
        draw(run, summary, out)
    print_summary(summary)
    print(f"\nreport: {out}")
    return 0


COMMAND = Command(
    "report",
    "regenerate report.html of a run, or compare several on one page",
    _words,
    _run,
    needed={},
)
