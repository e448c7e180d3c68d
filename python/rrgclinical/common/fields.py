"""Builds fields with allowed values, and reads the text beneath a field."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from dataclasses import field
from typing import Any


def one_of(default: str, *choices: str, own: bool = False) -> Any:
    """Make a field that holds one of these words, or with `own` a `package.module:function`."""
    return field(default=default, metadata={"choices": [default, *choices], "own": own})


def at_least(default: Any, minimum: float, maximum: float | None = None) -> Any:
    """Make a number with bounds, both included."""
    bounds = {"min": minimum} if maximum is None else {"min": minimum, "max": maximum}
    return field(default=default, metadata=bounds)


def descriptions(section: type) -> dict[str, str]:
    """Read the text beneath each field of a dataclass, by field name.

    Each is one line. A field whose metadata holds "text" has it from there, as a class that is made
    has no source."""
    made = [f for f in dataclasses.fields(section) if "text" in f.metadata]
    if made:
        return {f.name: f.metadata["text"] for f in made}
    texts = {}
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(node, ast.ClassDef)
    for first, second in itertools.pairwise(node.body):
        if (
            isinstance(first, ast.AnnAssign)
            and isinstance(first.target, ast.Name)
            and isinstance(second, ast.Expr)
            and isinstance(second.value, ast.Constant)
        ):
            texts[first.target.id] = " ".join(str(second.value.value).split())
    return texts
