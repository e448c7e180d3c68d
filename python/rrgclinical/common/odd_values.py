"""Find values that no setting takes in a tree of mappings and lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rrgclinical.common.errors import odd_text

Loc = tuple[str | int, ...]


def odd_numbers(tree: Any, loc: Loc = ()) -> Iterator[tuple[Loc, float]]:
    """Find numbers that no setting takes, and where in the tree they are."""
    if isinstance(tree, dict | list):
        for part, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from odd_numbers(item, (*loc, part))
    elif isinstance(tree, float | int):
        fits = -(2**63) <= tree < 2**63 if isinstance(tree, int) else math.isfinite(tree)
        if not fits:
            yield loc, tree


def odd_texts(tree: Any, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Find texts that no JSON can hold, and where they are."""
    if isinstance(tree, dict | list):
        for part, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from odd_texts(part, (*loc, part))
            yield from odd_texts(item, (*loc, part))
    elif isinstance(tree, str) and odd_text(tree):
        yield loc, tree
