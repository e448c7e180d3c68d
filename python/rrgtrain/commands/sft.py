"""`rrgtrain sft`: fine-tuning on reports."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import TRAINING_ON_GPUS, add_resume
from rrgtrain.commands.on_ranks import on_ranks

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="directory of the run")
    add_resume(parser)


def train(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run supervised fine-tuning and evaluate it on held-out studies."""
    from rrgtrain.run.outcome import finish, say
    from rrgtrain.run.stages import Stages

    with Stages.open(recipe, out, sft=True, verb="sft", resume=resume) as stages:
        tuned = stages.sft()
        finish(stages, "SFT", {"SFT": (stages.evaluate("SFT"), tuned)})
        say(f"checkpoint: {tuned.best}")


COMMAND = on_ranks(
    train,
    "sft",
    "fine-tune on reports up to the validation plateau",
    _words,
    recipe="sft",
    gpus=TRAINING_ON_GPUS,
    spread=True,
    resumable=True,
)
