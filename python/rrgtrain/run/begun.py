"""Tell the beginning of a run or a selection, which the same command goes on with."""

from __future__ import annotations

from rrgtrain.config import load_config
from rrgtrain.errors import Stopped, UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.rundir import RunDir


def begun_in(run: RunDir) -> Recipe | None:
    """Load the recipe of what a directory holds the beginning of; None where it has none."""
    if run.report.is_file() or not run.config.is_file():
        return None
    try:
        return load_config(Recipe, run.config, [])
    except Stopped:
        raise
    except UserError:  # a file that is no run's, or of another version
        return None
