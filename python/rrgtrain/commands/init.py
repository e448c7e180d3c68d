"""`rrgtrain init`: a recipe, a reward and a README for data of one's own."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rrgtrain.commands.command import Command, add_settings


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory that they go to")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FILE",
        help="table or directory that `rrgtrain data check` reads",
    )
    add_settings(parser, "settings of data")


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.run.init import begin_experiment

    lines = begin_experiment(options.folder, options.data, options.overrides)
    print("\n".join([f"cd {shlex.quote(str(options.folder))}", *lines]))
    return 0


COMMAND = Command(
    "init", "write a recipe, a reward and a README for data of your own", _words, _run
)
