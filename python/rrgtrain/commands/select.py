"""`rrgtrain select`: the training studies that reinforcement learning learns most from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import ON_GPUS, Command

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe


def _words(parser: argparse.ArgumentParser) -> None:
    # "" and not None: a random draw needs no policy, and the diverse one asks for it itself
    parser.add_argument("--from", dest="start", default="", help="fine-tuned checkpoint")
    parser.add_argument(
        "--out", type=Path, required=True, help="directory of the subset; resumes one that is there"
    )


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.commands.started import run_on_ranks
    from rrgtrain.run.select_studies import select

    def choose(recipe: Recipe, out: Path, *, resume: bool) -> None:
        select(recipe, out)

    return run_on_ranks(COMMAND, options, choose)


COMMAND = Command(
    "select",
    "choose the training studies that RL learns most from",
    _words,
    _run,
    recipe="deer",
    gpus=ON_GPUS,
    spread=True,
)
