"""`rrgtrain data`: synthetic radiographs without a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.on_ranks import on_ranks
from rrgtrain.errors import UserError

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="directory of the data set")


def draw(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Generate the phantoms of a recipe, without a run."""
    from rrgclinical.common.progress import Bar, progress
    from rrgdata.phantom import write_phantom

    if recipe.data.source != "phantom":
        raise UserError(
            f"data.source={recipe.data.source} is read, not written; name a recipe of phantoms"
        )
    config = recipe.data.phantom
    bar: Bar[int] = progress(config.train + config.val + config.test, "phantom")
    with bar:
        print(write_phantom(config, out, progress=bar.advance))


COMMAND = on_ranks(draw, "data", "generate synthetic radiographs", _words, recipe="demo")
