"""The verbs of the command line, once their words are understood."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rrgtrain.config import load_config
from rrgtrain.data.phantom import PhantomConfig, write_phantom
from rrgtrain.engine.outcome import EditRecorder, draw, finish
from rrgtrain.engine.progress import Bar, progress
from rrgtrain.engine.rundir import RunDir
from rrgtrain.engine.stages import Stages
from rrgtrain.errors import UserError
from rrgtrain.report.summary import RunSummary
from rrgtrain.report.table import print_summary
from rrgtrain.schema import Recipe

TITLES = {"editgrpo": "EditGRPO", "dr_grpo": "Dr. GRPO", "grpo": "GRPO"}


def run(options: argparse.Namespace) -> int:
    """Loads the recipe and runs the verb; 0 on success. Bad input is a `UserError`."""
    if options.verb == "report":
        return report(options.run)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    if getattr(options, "start", None):
        recipe.policy.path = options.start
    verbs = {"demo": demo, "sft": sft, "rl": rl, "eval": evaluation, "data": data}
    verbs[options.verb](recipe, options.out)
    return 0


def demo(recipe: Recipe, out: Path) -> None:
    """SFT, then reinforcement learning from it, both judged on the held-out studies."""
    began = time.perf_counter()
    name = TITLES.get(recipe.rl.algorithm, recipe.rl.algorithm)
    recorder = EditRecorder()
    with Stages.open(recipe, out, sft=True, rl=True) as stages:
        tuned = stages.sft()
        before = stages.evaluate("SFT")
        trained = stages.rl(recorder)
        after = stages.evaluate(name)
        finish(
            stages,
            f"SFT, then {name}",
            {"SFT": (before, tuned), name: (after, trained)},
            recorder,
            began,
        )


def sft(recipe: Recipe, out: Path) -> None:
    """Supervised fine-tuning, judged on the held-out studies."""
    began = time.perf_counter()
    with Stages.open(recipe, out, sft=True) as stages:
        tuned = stages.sft()
        finish(stages, "SFT", {"SFT": (stages.evaluate("SFT"), tuned)}, began=began)
        print(f"checkpoint: {tuned.best}")


def rl(recipe: Recipe, out: Path) -> None:
    """Reinforcement learning from `policy.path`, judged beside its start."""
    began = time.perf_counter()
    name = TITLES.get(recipe.rl.algorithm, recipe.rl.algorithm)
    recorder = EditRecorder()
    with Stages.open(recipe, out, rl=True) as stages:
        before = stages.evaluate("start")
        trained = stages.rl(recorder)
        after = stages.evaluate(name)
        systems = {"start": (before, None), name: (after, trained)}
        finish(stages, name, systems, recorder, began)
        print(f"checkpoint: {trained.best}")


def evaluation(recipe: Recipe, out: Path) -> None:
    """The reports of a checkpoint, scored."""
    began = time.perf_counter()
    with Stages.open(recipe, out) as stages:
        name = Path(recipe.policy.path).name
        finish(stages, f"evaluation of {name}", {name: (stages.evaluate(name), None)}, began=began)


def data(recipe: Recipe, out: Path) -> None:
    """The phantoms of a recipe, without a run."""
    if recipe.data.source != "phantom":
        raise UserError(
            f"data.source={recipe.data.source} is read, not written; name a recipe of phantoms"
        )
    config = PhantomConfig(**vars(recipe.data.phantom))
    bar: Bar[int] = progress(config.train + config.val + config.test, "phantom")
    with bar:
        print(write_phantom(config, out, progress=bar.advance))


def report(path: Path) -> int:
    """Draws the report of a finished run again and prints its table."""
    found = RunDir.open(path)
    summary = RunSummary.load(found.summary)
    draw(found, summary)
    print_summary(summary)
    print(f"\nreport: {found.report}")
    return 0
