"""`rrgtrain serve`: the rewards of a recipe behind HTTP, for trainers of others."""

from __future__ import annotations

import argparse

from rrgtrain.commands.command import Command


def _words(parser: argparse.ArgumentParser) -> None:
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


def _run(options: argparse.Namespace) -> int:
    from rrgclinical.serving.batcher import BatchSettings
    from rrgtrain.config import load_config
    from rrgtrain.run.serve import serve
    from rrgtrain.schema import Recipe

    settings = BatchSettings(options.batch, options.wait, options.queue)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    serve(recipe.reward, recipe.data, (options.host, options.port), settings)
    return 0


COMMAND = Command(
    "serve",
    "serve a recipe's rewards over HTTP, for verl, ms-swift and EasyR1",
    _words,
    _run,
    recipe="editgrpo",
)
