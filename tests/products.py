"""Mark the cases that `make products` has beside the representatives in `make test`."""

from __future__ import annotations

from typing import Any

import pytest


def more(*values: Any) -> list[Any]:
    """Return the values of a parameter, marked as more than `make test` takes."""
    return [pytest.param(value, marks=pytest.mark.product) for value in values]


def first_of(rows: list[tuple[Any, ...]], count: int) -> list[Any]:
    """Return rows of several parameters, all but the first `count` marked as `more` does."""
    rest = [pytest.param(*row, marks=pytest.mark.product) for row in rows[count:]]
    return [*rows[:count], *rest]
