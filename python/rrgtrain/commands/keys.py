"""`rrgtrain keys`: the settings of a recipe."""

from __future__ import annotations

import argparse

from rrgtrain.commands.command import Command, add_json


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prefix", nargs="?", default="", help="beginning of a key, e.g. rl or rl.eps"
    )
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.listing import list_keys

    print(list_keys(options.prefix, as_json=options.json))
    return 0


COMMAND = Command(
    "keys", "list the settings with types, defaults and allowed values", _words, _run, anywhere=True
)
