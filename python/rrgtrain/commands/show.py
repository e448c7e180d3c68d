"""`rrgtrain recipes`, `keys` and `doctor`: what is there, printed."""

from __future__ import annotations

import argparse

from rrgtrain.commands.command import Command, add_json


def _recipes(options: argparse.Namespace) -> int:
    from rrgtrain.listing import list_recipes

    print(list_recipes(as_json=options.json))
    return 0


RECIPES = Command(
    "recipes", "list the recipes with their papers", add_json, _recipes, anywhere=True
)


def _keys_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prefix", nargs="?", default="", help="beginning of a key, e.g. rl or rl.eps"
    )
    add_json(parser)


def _keys(options: argparse.Namespace) -> int:
    from rrgtrain.listing import list_keys

    print(list_keys(options.prefix, as_json=options.json))
    return 0


KEYS = Command(
    "keys",
    "list the settings with types, defaults and allowed values",
    _keys_words,
    _keys,
    anywhere=True,
)


def _doctor(options: argparse.Namespace) -> int:
    from rrgkern.__main__ import main

    main([])
    return 0


DOCTOR = Command("doctor", "check this installation", lambda _: None, _doctor, anywhere=True)
