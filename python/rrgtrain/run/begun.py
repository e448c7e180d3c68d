"""Tell the beginning of a run or a selection, which the same command goes on with."""

from __future__ import annotations

from rrgtrain.config import load_config
from rrgtrain.errors import Stopped, UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.rundir import RunDir


def is_begun(run: RunDir, recipe: Recipe) -> bool:
    """Tell whether a directory holds the beginning of this very recipe, and no end of it."""
    if run.report.is_file() or not run.config.is_file():
        return False
    try:
        return load_config(Recipe, run.config, []) == recipe
    except Stopped:
        raise
    except UserError:  # a file that is no run's, or of another version
        return False
