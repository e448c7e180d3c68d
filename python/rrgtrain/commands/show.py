"""`rrgtrain recipes`, `keys` and `doctor`: what is there, printed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import textwrap
from typing import TYPE_CHECKING

from rrgtrain.commands.command import Command, add_json

if TYPE_CHECKING:
    from rrgtrain.schema.keys import Setting


def _recipes(options: argparse.Namespace) -> int:
    """Print every recipe with its paper and description, one a line.

    --json: a list of objects with recipe, paper (null for none) and description.
    """
    from rrgtrain.recipe_files import describe_recipe, paper_of, recipe_names

    rows = [(name, paper_of(name), describe_recipe(name)) for name in recipe_names()]
    if options.json:
        names = ("recipe", "paper", "description")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1))
        return 0
    wide = max(len(name) for name, *_ in rows)
    for name, paper, text in rows:
        print(f"{name:{wide}}  {paper or '-':8}  {text}")
    return 0


RECIPES = Command(
    "recipes", "list the recipes with their papers", add_json, _recipes, anywhere=True
)


def _keys_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefix", nargs="?", default="", help="beginning of a key, as rl or rl.eps")
    add_json(parser)


def _keys(options: argparse.Namespace) -> int:
    """Print the settings whose key begins so: type, default, allowed values, meaning.

    --json: a list of objects with key, type, default, choices, bounds and description.

    Raises:
        UserError: no key begins so; the line names the nearest one.
    """
    from rrgtrain.schema import Recipe
    from rrgtrain.schema.keys import kind_at, settings

    prefix = options.prefix
    chosen = [
        setting
        for setting in settings(Recipe)
        if setting.key.startswith(prefix) or (setting.free and prefix.startswith(f"{setting.key}."))
    ]
    if not chosen:
        kind_at(Recipe, prefix, "keys")
    if options.json:
        rows = map(dataclasses.asdict, chosen)
        shown = [{k: v for k, v in row.items() if k != "free"} for row in rows]
        print(json.dumps(shown, indent=1))
    else:
        print("\n".join(map(_shown, chosen)))
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


def _shown(setting: Setting) -> str:
    wanted = setting.type
    if setting.choices is not None:
        wanted = f"one of {', '.join(setting.choices)}"
    if setting.bounds:
        wanted = f"{wanted}, {' and '.join(setting.bounds)}"
    default = setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
    text = textwrap.fill(setting.description, 96, initial_indent=4 * " ", subsequent_indent=4 * " ")
    return f"{setting.key}: {wanted}; default {default}\n{text}"
