"""A rule about names: a local is named for what it holds, not for how it came."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.house import plan
from tests.house.tree import Module, modules, shipped


def vague(module: Module) -> Counter[str]:
    """Count the places where locals and parameters take a vague name, by name."""
    names: Counter[str] = Counter()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] += 1
        elif isinstance(node, ast.arg):
            names[node.arg] += 1
    return Counter({name: count for name, count in names.items() if name in plan.VAGUE})


def allowed() -> dict[str, int]:
    """Map each file that still may have such names to their number."""
    counts = {}
    for folder, names in plan.VAGUE_LOCALS.items():
        words = names.split()
        for stem, count in zip(words[::2], words[1::2], strict=True):
            counts[f"{folder}/{stem}.py"] = int(count)
    return counts


def needless(root: Path) -> Iterator[str]:
    """Yield the files that have fewer such names than the table allows them."""
    counts = {module.where.as_posix(): vague(module).total() for module in modules(root)}
    for name, limit in allowed().items():
        if counts.get(name, 0) < limit:
            yield f"VAGUE_LOCALS: {name} has {counts.get(name, 0)}, lower its {limit}"


def locals_say_what_they_hold(root: Path) -> Iterator[str]:
    """Check that no local has a vague name, beyond those that a file still may have."""
    limits = allowed()
    for module in shipped(modules(root)):
        names, where = vague(module), module.where.as_posix()
        limit = limits.get(where, 0)
        if names.total() > limit:
            listed = ", ".join(sorted(names))
            yield f"{where}: {names.total()} locals named {listed}, at most {limit}"


RULES = (locals_say_what_they_hold,)
