"""`rrgtrain demo`: fine-tuning, then reinforcement learning from it, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import TRAINING_ON_GPUS, add_resume
from rrgtrain.commands.on_ranks import on_ranks
from rrgtrain.errors import UserError

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe

SMALL = "demo_small"
"""Recipe of `--small`."""


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="directory of the run; default: runs/demo")
    parser.add_argument(
        "--small",
        action="store_true",
        help=f"the recipe {SMALL}: a minute on two cores, which shows that everything runs",
    )
    add_resume(parser)


def _complete(options: argparse.Namespace) -> None:
    """Choose recipe and directory; UserError for `--small` beside a recipe."""
    if options.small and options.recipe is not None:
        raise UserError(
            f"--small is the recipe {SMALL}: leave out {options.recipe}; see `rrgtrain demo --help`"
        )
    options.recipe = SMALL if options.small else options.recipe
    options.out = options.out or Path("runs", "demo-small" if options.small else "demo")


def train(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run SFT, then reinforcement learning from it, and evaluate both on held-out studies."""
    from rrgreport.names import phase_name
    from rrgtrain.run.outcome import finish
    from rrgtrain.run.stages import Stages
    from rrgtrain.train.step_record import SampleCollector

    name, moments = phase_name(recipe.rl.algorithm), SampleCollector()
    with Stages.open(recipe, out, sft=True, rl=True, verb="demo", resume=resume) as stages:
        tuned = stages.sft()
        before = stages.evaluate("SFT")
        trained = stages.rl(moments)
        after = stages.evaluate(name)
        title = f"SFT, then {name}"
        finish(stages, title, {"SFT": (before, tuned), name: (after, trained)}, moments)


COMMAND = on_ranks(
    train,
    "demo",
    "run SFT and RL on synthetic radiographs and compare them",
    _words,
    recipe="demo",
    gpus=TRAINING_ON_GPUS,
    spread=True,
    resumable=True,
    complete=_complete,
)
