"""`rrgtrain rl`: reinforcement learning from a checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import TRAINING_ON_GPUS, add_resume, add_start
from rrgtrain.commands.on_ranks import on_ranks

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe


def _words(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    parser.add_argument("--out", type=Path, help="directory of the run")
    add_resume(parser)


def train(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run reinforcement learning from `policy.path`, and evaluate it beside its start."""
    from rrgreport.names import phase_name
    from rrgtrain.run.outcome import finish, say
    from rrgtrain.run.stages import Stages
    from rrgtrain.train.step_record import SampleCollector

    name, moments = phase_name(recipe.rl.algorithm), SampleCollector()
    with Stages.open(recipe, out, rl=True, verb="rl", resume=resume) as stages:
        before = stages.evaluate("start")
        trained = stages.rl(moments)
        after = stages.evaluate(name)
        finish(stages, name, {"start": (before, None), name: (after, trained)}, moments)
        say(f"checkpoint: {trained.best}")


COMMAND = on_ranks(
    train,
    "rl",
    "train a checkpoint by reinforcement learning",
    _words,
    recipe="editgrpo",
    gpus=TRAINING_ON_GPUS,
    spread=True,
    resumable=True,
)
