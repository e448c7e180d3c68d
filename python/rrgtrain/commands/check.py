"""`rrgtrain check`: what a run would do with a model, and what would refuse it."""

from __future__ import annotations

import argparse

from rrgtrain.commands.command import Command, add_settings

RECIPE = "editgrpo"


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("start", metavar="MODEL", help="checkpoint directory or hub name")
    add_settings(parser, "settings (see `rrgtrain keys`)")
    parser.add_argument("--recipe", default=RECIPE, help=f"name or YAML file; default: {RECIPE}")
    parser.add_argument(
        "--step", action="store_true", help="train one step at the longest lengths; print its peak"
    )


def _run(options: argparse.Namespace) -> int:
    from rrgclinical.common.shown import one_line
    from rrgtrain.commands.started import recipe_of
    from rrgtrain.run.model_check import REFUSED, check_model

    recipe, is_refused = recipe_of(options), False
    for line in check_model(recipe):
        print(one_line(line), flush=True)
        is_refused |= REFUSED in line
    if options.step and not is_refused:
        from rrgtrain.plan import stage_of
        from rrgtrain.run.model_check import measure_step

        for line in measure_step(recipe, stage_of(options.recipe, recipe.rl.algorithm)):
            print(one_line(line), flush=True)
    return int(is_refused)


COMMAND = Command(
    "check",
    "tell what a run would do with a model; exit status 1 where it would be refused",
    _words,
    _run,
)
