"""`rrgtrain select`: the training studies that reinforcement learning learns most from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import ON_GPUS
from rrgtrain.commands.on_ranks import on_ranks

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe


def _words(parser: argparse.ArgumentParser) -> None:
    # "" and not None: a random draw needs no policy, and the diverse one asks for it itself
    parser.add_argument("--from", dest="start", default="", help="fine-tuned checkpoint")
    parser.add_argument(
        "--out", type=Path, required=True, help="directory of the subset; resumes one that is there"
    )


def choose(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Draw the studies; the directory of an earlier draw is gone on with unasked."""
    from rrgtrain.run.select_studies import select

    select(recipe, out)


COMMAND = on_ranks(
    choose,
    "select",
    "choose the training studies that RL learns most from",
    _words,
    recipe="deer",
    gpus=ON_GPUS,
    spread=True,
)
