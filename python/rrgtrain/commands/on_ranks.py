"""Make a command whose work all ranks do together."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from rrgtrain.commands.command import Command, Words


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
