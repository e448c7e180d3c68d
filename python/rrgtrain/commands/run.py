"""`rrgtrain report` and `replay`: the page and the saved batches of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from rrgtrain.commands.command import Command


def _report_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directory of a run")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page; default: report.html of the run, or compare.html of several",
    )


def _report(options: argparse.Namespace) -> int:
    from rrgreport.compare import draw_page

    draw_page(options.runs, options.out)
    return 0


REPORT = Command(
    "report",
    "regenerate report.html of a run, or compare several on one page",
    _report_words,
    _report,
    needed={},
)


def _replay_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", type=Path, help="RUN/failures/<stage>-<step>")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of the run")


def _replay(options: argparse.Namespace) -> int:
    from rrgclinical.common.shown import one_line
    from rrgtrain.run.replay import replay_batch

    for line in replay_batch(options.batch, options.overrides):
        print(one_line(line))
    return 0


REPLAY = Command(
    "replay",
    "recompute a saved NaN batch and say where it is not finite",
    _replay_words,
    _replay,
)
