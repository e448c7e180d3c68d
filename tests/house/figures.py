"""Measure a tree: the figures by which one layout of the house is compared with another."""

from __future__ import annotations

import io
import statistics
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.house import plan, tree, weight
from tests.house.tree import Module

TINY = 40  # lines


def report(root: Path) -> Iterator[str]:
    """Yield the lines of the report on the tree at `root`."""
    everything = tree.modules(root)
    sections = (
        ("Weight, and its caps", weight_lines(root)),
        ("Rooms", room_table(everything)),
        ("Functions and classes", function_table(everything)),
        ("Comments and docstrings", prose_table(everything)),
    )
    for title, lines in sections:
        yield from (f"## {title}", "", *lines, "")


def weight_lines(root: Path) -> Iterator[str]:
    """Yield each weight of the tree beside its cap."""
    for name, value in weight.weights(root).items():
        yield f"{name}: {value:,} (at most {plan.CAPS[name]:,})"


def _groups(everything: list[Module]) -> dict[str, list[Module]]:
    """Sort the modules by top-level folder: the packages, then experiments, bench, tests."""
    groups: dict[str, list[Module]] = defaultdict(list)
    for module in everything:
        groups[module.package].append(module)
    last = ("experiments", "bench", "tests")
    return dict(sorted(groups.items(), key=lambda item: (item[0] in last, item[0])))


def room_table(everything: list[Module]) -> Iterator[str]:
    """Yield files, lines, median, longest and tiny ones of each room and package."""
    yield "| room | py files | lines | median | longest | tiny |"
    yield "|---|---|---|---|---|---|"
    for package, members in _groups(everything).items():
        rooms = defaultdict(list)
        for module in members:
            rooms[module.room].append(module)
        if package not in ("tests", "bench"):
            for room, inside in sorted(rooms.items()):
                yield _row(f"{package}/{room}" if room else f"{package} (beside its rooms)", inside)
        yield _row(f"**{package}**", members)


def _row(name: str, members: list[Module]) -> str:
    lines = [module.lines for module in members]
    longest = max(members, key=lambda module: module.lines)
    stem = longest.where.parent.name if longest.is_package else longest.where.stem
    tiny = [module for module in members if module.lines < TINY]
    told = len([module for module in tiny if not module.is_package])
    return (
        f"| {name} | {len(lines)} | {sum(lines):,} | {statistics.median(lines):.0f} "
        f"| {stem} {max(lines)} | {len(tiny)} ({told} without `__init__`) |"
    )


def function_table(everything: list[Module]) -> Iterator[str]:
    """Yield number, median and longest of the functions, and the classes."""
    yield "| package | functions | median | longest | classes |"
    yield "|---|---|---|---|---|"
    for package, members in _groups(everything).items():
        inside = [f for module in members for f in tree.functions(module)]
        if inside:
            longest = max(inside, key=lambda f: f.lines)
            classes = sum(len(tree.classes(module)) for module in members)
            yield (
                f"| {package} | {len(inside)} | {statistics.median(f.lines for f in inside):.0f} "
                f"| {longest.qualified} {longest.lines} | {classes} |"
            )


def prose_table(everything: list[Module]) -> Iterator[str]:
    """Yield the share of lines with a comment, and of docstring lines."""
    yield "| package | lines | comments | docstrings |"
    yield "|---|---|---|---|"
    for package, members in _groups(everything).items():
        total = sum(module.lines for module in members)
        comments = sum(_comment_lines(module) for module in members)
        documented = sum(_docstring_lines(module) for module in members)
        if total:
            yield f"| {package} | {total:,} | {comments / total:.1%} | {documented / total:.1%} |"


def _comment_lines(module: Module) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})


def _docstring_lines(module: Module) -> int:
    strings = (node for _, node in tree.docstrings(module))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in strings)
