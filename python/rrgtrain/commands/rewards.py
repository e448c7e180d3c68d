"""`rrgtrain stress` and `serve`: the rewards of a recipe without a training."""

from __future__ import annotations

import argparse
from pathlib import Path

from rrgtrain.commands.command import Command


def _stress_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reports",
        type=Path,
        metavar="FILE",
        help="reports to plant errors in: CSV, JSONL or JSON; default: those of the recipe's data",
    )
    parser.add_argument(
        "--studies", type=int, default=150, metavar="N", help="how many of them, at most"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="compare with preferences instead: columns reference, first, second, preferred",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the means to this file")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 where a harmless change costs more than a critical error",
    )


def _stress(options: argparse.Namespace) -> int:
    from rrgtrain.config import load_config
    from rrgtrain.run.stress import StressOptions, stress
    from rrgtrain.schema import Recipe

    recipe = load_config(Recipe, options.recipe, options.overrides)
    choices = StressOptions(
        options.studies, options.reports, options.against, options.svg, options.strict
    )
    return stress(recipe, choices)


STRESS = Command(
    "stress",
    "show how a reward's terms order planted errors, and what games them",
    _stress_words,
    _stress,
    recipe="editgrpo",
)


def _serve_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8008, help="port; 0 takes a free one")
    parser.add_argument(
        "--batch", type=int, default=256, metavar="N", help="reports at which a batch is scored"
    )
    parser.add_argument(
        "--wait", type=float, default=0.02, metavar="S", help="seconds it waits for more at most"
    )
    parser.add_argument(
        "--queue", type=int, default=8192, metavar="N", help="reports that may wait at most"
    )


def _serve(options: argparse.Namespace) -> int:
    import rrgclinical.serving.app  # noqa: F401 (tells what is missing before torch is loaded)
    from rrgclinical.serving.batcher import BatchSettings
    from rrgtrain.config import load_config
    from rrgtrain.run.serve import serve
    from rrgtrain.schema import Recipe

    settings = BatchSettings(options.batch, options.wait, options.queue)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    serve(recipe.reward, recipe.data, (options.host, options.port), settings)
    return 0


SERVE = Command(
    "serve",
    "serve a recipe's rewards over HTTP, for verl, ms-swift and EasyR1",
    _serve_words,
    _serve,
    recipe="editgrpo",
)
