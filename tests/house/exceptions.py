"""Exceptions of the plan that are no longer needed, and limits that are too wide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house import plan, rules, tree, words

# A limit may be so much wider than what is there, so that not every change has to touch the plan.
SLACK = 0.1


def needless(root: Path) -> Iterator[str]:
    """Yield the entries of `plan.py` that allow what the tree at `root` no longer does."""
    everything = tree.modules(root)
    product = tree.shipped(everything)
    entered = list(tree.deep(product))
    inner = {(i.source.name, i.target) for i in entered if not plan.is_open(i.target)}
    twice = {
        f"{package}:{name}" for package, name in tree.duplicate_classes(tree.documented(everything))
    }
    tables = (
        ("INNER", plan.INNER - inner),
        ("OWN_JSON", plan.OWN_JSON - {m.name for m in product if any(tree.json_calls(m))}),
        ("SAME_NAME", plan.SAME_NAME - twice),
    )
    for table, entries in tables:
        yield from (f"{table}: {entry} is mended, take it off" for entry in sorted(entries))
    yield from _files(root)
    outside = list(tree.outside(everything))
    experiments = (i for i in outside if i.source.package == "experiments")
    yield from _doors({found.target for found in [*entered, *experiments]} | _documented(root))
    own = (i.target for i in outside if plan.opens_its_own(i.source.name, i.target))
    yield from _opened(set(own))
    yield from _limits(root)
    yield from words.needless(root)


def _files(root: Path) -> Iterator[str]:
    for name, limit in plan.LONG_FILES.items():
        path = root / name
        lines = path.read_text().count("\n") if path.exists() else 0
        if lines <= plan.FILE_LINES:
            yield f"LONG_FILES: {name} has {lines} lines, take it off"
        elif lines < limit * (1 - SLACK):
            yield f"LONG_FILES: {name} has {lines} lines, lower its {limit}"


def _doors(targets: set[str]) -> Iterator[str]:
    for room, doors in plan.DOORS.items():
        for door in doors.split():
            if f"{room}.{door}" not in targets:
                yield f"DOORS: no other room, experiment or page imports {room}.{door}, take it off"


def _documented(root: Path) -> set[str]:
    """Name the modules of which an API page of docs describes a member."""
    pages = tree.files(root, ".md")
    texts = (page.read_text() for page in pages if page.is_relative_to(root / "docs" / "api"))
    return {name for text in texts for name in re.findall(r"^::: ([\w.]+)\.\w+$", text, re.M)}


def _opened(targets: set[str]) -> Iterator[str]:
    for room, names in plan.OPENED.items():
        for name in names.split():
            if f"{room}.{name}" not in targets:
                yield f"OPENED: no test of the room opens {room}.{name}, take it off"


def _limits(root: Path) -> Iterator[str]:
    for rule in rules.RULES:
        limit = plan.LIMITS.get(rule.__name__, 0)
        if limit and limit > (count := len(list(rule(root)))) * (1 + SLACK) + 1:
            yield f"LIMITS: {rule.__name__} has {count} violations, lower its {limit}"
