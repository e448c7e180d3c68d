"""`rrgtrain recipes`: the recipes with their papers."""

from __future__ import annotations

import argparse

from rrgtrain.commands.command import Command, add_json


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.listing import list_recipes

    print(list_recipes(as_json=options.json))
    return 0


COMMAND = Command("recipes", "list the recipes with their papers", add_json, _run, anywhere=True)
