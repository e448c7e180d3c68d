"""`rrgtrain plan`: what a run will need, before it."""

from __future__ import annotations

import argparse
import warnings

from rrgtrain.commands.command import Command, add_json
from rrgtrain.errors import UserError


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="GPUs, one process each")
    parser.add_argument(
        "--gpu", default="h100", help="h100, h200, a100-80, a100-40, l40s, a10 or cpu"
    )
    for name, text in (
        ("gpu-memory", "memory of one GPU, where it is another"),
        ("host-memory", "memory of a node, to be compared with"),
        ("disk", "free room of the run's disk, to be compared with"),
    ):
        parser.add_argument(f"--{name}", type=float, metavar="GIB", help=text)
    parser.add_argument("--stage", choices=("sft", "rl"), help="default: what the recipe is for")
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.config import load_config
    from rrgtrain.schema import Recipe

    recipe = load_config(Recipe, options.recipe, options.overrides)
    from rrgclinical.common.shown import hidden
    from rrgpolicy.rollout.engines import find_engine
    from rrgtrain import plan
    from rrgtrain.algorithms import find_layers
    from rrgtrain.run.room import idle_ranks

    machine = plan.machine_of(options.gpu, options.gpu_memory)
    find_engine(recipe.rollout.engine)  # a misspelt name would be planned as somebody's own
    if options.gpus > 1 and "scale.mode=none" in options.overrides:
        raise UserError(f"scale.mode=none is one process, --gpus {options.gpus} several; drop one")
    host = plan.Host.of_gib(options.host_memory, options.disk)
    stage = options.stage or plan.stage_of(options.recipe, recipe.rl.algorithm)
    if stage == "rl":
        find_layers(recipe.rl.algorithm)  # nor is an algorithm that there is none of
    setup = plan.Setup.of(recipe, machine, options.gpus)
    planned = plan.plan_stage(setup, stage)
    fits, line = plan.verdict(setup, planned, host)
    shown = plan.as_json(setup, planned, fits, line) if options.json else ""
    print(hidden(shown or plan.as_table(setup, planned, line)), flush=True)
    if idle := idle_ranks(getattr(recipe, stage), options.gpus):
        warnings.warn(idle, stacklevel=2)
    return 0 if fits else 2


COMMAND = Command(
    "plan",
    "print what a run will hold, before it: state, checkpoints, disk",
    _words,
    _run,
    recipe="editgrpo",
)
