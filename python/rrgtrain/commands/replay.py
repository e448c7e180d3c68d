"""`rrgtrain replay`: a saved batch, computed again."""

from __future__ import annotations

import argparse
from pathlib import Path

from rrgtrain.commands.command import Command


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", type=Path, help="RUN/failures/<stage>-<step>")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of the run")


def _run(options: argparse.Namespace) -> int:
    from rrgclinical.common.shown import one_line
    from rrgtrain.run.replay import replay_batch

    for line in replay_batch(options.batch, options.overrides):
        print(one_line(line))
    return 0


COMMAND = Command(
    "replay", "recompute a saved NaN batch and say where it is not finite", _words, _run
)
