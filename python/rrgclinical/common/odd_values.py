"""Find values that no setting takes in a tree of mappings and lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rrgclinical.common.errors import odd_text

Loc = tuple[str | int, ...]


def odd_numbers(tree: Any) -> Iterator[tuple[Loc, float]]:
    """Find numbers that no setting takes, and where in the tree they are."""
    for loc, leaf in _leaves(tree):
        if isinstance(leaf, int):
            fits = -(2**63) <= leaf < 2**63
        else:
            fits = not isinstance(leaf, float) or math.isfinite(leaf)
        if not fits:
            yield loc, leaf


def odd_texts(tree: Any) -> Iterator[tuple[Loc, str]]:
    """Find texts, keys too, that no JSON can hold, with the way there."""
    for loc, leaf in _leaves(tree):
        for text in (*loc, leaf):
            if isinstance(text, str) and odd_text(text):
                yield loc, text


def _leaves(tree: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    if isinstance(tree, dict | list) and tree:
        for part, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(item, (*loc, part))
    else:
        yield loc, tree
