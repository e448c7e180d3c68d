"""Mark the cases that `make slow NAME=products` has beside the representatives in `make test`."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch


def every_case() -> bool:
    """Tell whether products of cases run whole: in a target of their own, and on a GPU."""
    return os.environ.get("RRGKERN_PRODUCTS") == "1" or torch.cuda.is_available()


def more(*values: Any) -> list[Any]:
    """Return the values of a parameter, marked as more than `make test` takes."""
    return [pytest.param(value, marks=pytest.mark.product) for value in values]


def first_of(rows: list[tuple[Any, ...]], count: int) -> list[Any]:
    """Return rows of several parameters, all but the first `count` marked as `more` does."""
    rest = [pytest.param(*row, marks=pytest.mark.product) for row in rows[count:]]
    return [*rows[:count], *rest]
