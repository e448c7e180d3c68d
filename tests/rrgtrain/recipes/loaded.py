"""Recipes that several tests read, each loaded once."""

from __future__ import annotations

import copy
from functools import cache

from rrgtrain.config import load_config
from rrgtrain.recipe_files import recipe_names
from rrgtrain.schema import Recipe

# Layers of data, which are laid upon a method, and the methods at the size of their papers.
LAYERS = [name for name in recipe_names() if name.startswith("paper/on_")]
PAPER = [name for name in recipe_names() if name.startswith("paper/") and name not in LAYERS]


@cache
def _loaded(name: str | None) -> Recipe:
    return load_config(Recipe, name, [])


def loaded(name: str | None) -> Recipe:
    """A copy of a shipped recipe without overrides; None for the defaults."""
    return copy.deepcopy(_loaded(name))
