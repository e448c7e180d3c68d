"""Recipes that several tests read, each loaded once."""

from __future__ import annotations

import copy
from functools import cache

from rrgtrain.config import load_config
from rrgtrain.schema import Recipe


@cache
def _loaded(name: str | None) -> Recipe:
    return load_config(Recipe, name, [])


def loaded(name: str | None) -> Recipe:
    """A copy of a shipped recipe without overrides; None for the defaults."""
    return copy.deepcopy(_loaded(name))
