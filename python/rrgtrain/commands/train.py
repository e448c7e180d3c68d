"""`rrgtrain demo`, `sft`, `rl`: what trains and evaluates a policy; `report` of a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrgtrain.commands.command import TRAINING_ON_GPUS, Command, Words, add_resume, add_start
from rrgtrain.errors import UserError

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe

SMALL = "demo_small"
"""Recipe of `--small`."""
TRAINS: dict[str, Any] = {"gpus": TRAINING_ON_GPUS, "spread": True, "resumable": True}


def on_ranks(
    work: Callable[..., None], name: str, text: str, words: Words, **described: Any
) -> Command:
    """Make the command whose `run` is `work` on every rank, see `run_on_ranks`.

    work: takes the recipe, the directory of --out, and `resume`. described: other fields.
    """

    def run(options: argparse.Namespace) -> int:
        from rrgtrain.commands.started import run_on_ranks

        return run_on_ranks(command, options, work)

    command = Command(name, text, words, run, **described)
    return command


def _demo_words(parser: argparse.ArgumentParser) -> None:
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


def train_both(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
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


DEMO = on_ranks(
    train_both,
    "demo",
    "run SFT and RL on synthetic radiographs and compare them",
    _demo_words,
    recipe="demo",
    **TRAINS,
    complete=_complete,
)


def _sft_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="directory of the run")
    add_resume(parser)


def fine_tune(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run supervised fine-tuning and evaluate it on held-out studies."""
    from rrgtrain.run.outcome import finish, say
    from rrgtrain.run.stages import Stages

    with Stages.open(recipe, out, sft=True, verb="sft", resume=resume) as stages:
        tuned = stages.sft()
        finish(stages, "SFT", {"SFT": (stages.evaluate("SFT"), tuned)})
        say(f"checkpoint: {tuned.best}")


SFT = on_ranks(
    fine_tune,
    "sft",
    "fine-tune on reports up to the validation plateau",
    _sft_words,
    recipe="sft",
    **TRAINS,
)


def _rl_words(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    _sft_words(parser)


def reinforce(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
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


RL = on_ranks(
    reinforce,
    "rl",
    "train a checkpoint by reinforcement learning",
    _rl_words,
    recipe="editgrpo",
    **TRAINS,
)


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
