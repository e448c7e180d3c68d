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


def training(verb: str, *, sft: bool = False, rl: bool = False) -> Callable[..., None]:
    """Make a command's work: train its stages, each beside its start."""

    def train(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
        from rrgreport.names import phase_name
        from rrgtrain.run.outcome import finish, say
        from rrgtrain.run.stages import Stages

        name = phase_name(recipe.rl.algorithm)
        start, title = "SFT" if sft else "start", ["SFT"] * sft + [name] * rl
        with Stages.open(recipe, out, sft=sft, rl=rl, verb=verb, resume=resume) as stages:
            result: Any = stages.sft() if sft else None
            evaluated = {start: (stages.evaluate(start), result)}
            if rl:
                result = stages.rl()
                evaluated[name] = (stages.evaluate(name), result)
            finish(stages, ", then ".join(title), evaluated)
            if verb != "demo":
                say(f"checkpoint: {result.best}")

    return train


DEMO = on_ranks(
    training("demo", sft=True, rl=True),
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


SFT = on_ranks(
    training("sft", sft=True),
    "sft",
    "fine-tune on reports up to the validation plateau",
    _sft_words,
    recipe="sft",
    **TRAINS,
)


def _rl_words(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    _sft_words(parser)


RL = on_ranks(
    training("rl", rl=True),
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
