"""`rrgtrain stress`: how the terms of a reward order planted errors, and what games them."""

from __future__ import annotations

import argparse
from pathlib import Path

from rrgtrain.commands.command import Command


def _words(parser: argparse.ArgumentParser) -> None:
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


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.config import load_config
    from rrgtrain.run.stress import StressOptions, stress
    from rrgtrain.schema import Recipe

    recipe = load_config(Recipe, options.recipe, options.overrides)
    choices = StressOptions(
        options.studies, options.reports, options.against, options.svg, options.strict
    )
    return stress(recipe, choices)


COMMAND = Command(
    "stress",
    "show how a reward's terms order planted errors, and what games them",
    _words,
    _run,
    recipe="editgrpo",
)
