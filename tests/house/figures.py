"""Measure a tree: the figures by which one layout of the house is compared with another.

The names of older layouts (engine, token_logps, ...) are known too, so a checkout from before the
move can be measured with the same ruler.
"""

from __future__ import annotations

import ast
import io
import statistics
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.house import plan, tree, weight
from tests.house.tree import LIBRARY, Function, Import, Module

MANY = 6  # parameters: more than these want a record
TINY = 40  # lines
# The family of rooms around the log-probs and the policy losses, before and after the move.
LOSS_FAMILY = (
    *("logps", "policy_loss"),
    *("token_logps", "linear_token_logps", "grpo_loss", "linear_grpo_loss"),
)
# What holds a batch of sampled reports, or a part of one, on its way from sampling to the loss.
CONTAINERS = {
    *("Rollout", "Member", "Group", "Edited", "RewardBatch", "Scores", "Rollouts", "ScoredBatch"),
    *("Batch", "Objective", "FlatObjective", "Preference", "FixedLogps", "RolloutLogps"),
    *("Layout", "Part", "Slice", "MiniBatch", "MicroBatch", "Update", "Completion", "Sampled"),
}
# Rooms of rrgtrain before the move, and the part on whose floor they stood.
OLD_ROOMS = {"engine": "train", "replicate": "commands", "clinical": "util", "shown": "errors"}
CONTAINER_ROOMS = {"rollout", "algorithms", "rewards", "engine", "train", "log"}


def report(root: Path) -> Iterator[str]:
    """Yield the lines of the report on the tree at `root`."""
    everything = tree.modules(root)
    product = tree.shipped(everything)
    sections = (
        ("Weight, and its caps", weight_lines(root)),
        ("Rooms", room_table(everything)),
        ("Functions and classes", function_table(everything)),
        ("Comments and docstrings", prose_table(everything)),
        (
            "Public class names that occur twice in a package",
            duplicate_lines(tree.documented(everything)),
        ),
        ("Modules with exactly one importer", single_lines(tree.documented(everything))),
        ("Arrows upward", upward_lines(product)),
        ("Files of a room that other rooms import", door_lines(product)),
        ("Deep imports in the loss family", family_lines(product)),
        ("Imports of inner files by tests and benches", outside_lines(everything)),
        ("Containers from sampling to loss", container_lines(product)),
        (
            f"Functions with more than {MANY} parameters",
            signature_lines(tree.documented(everything)),
        ),
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
    """Yield number, median and longest of the functions, the wide ones, and the classes."""
    doors = tree.public_doors(everything)
    wide_columns = f"> {MANY} parameters | not kernels | nor doors"
    yield f"| package | functions | median | longest | {wide_columns} | classes |"
    yield "|---|---|---|---|---|---|---|---|"
    for package, members in _groups(everything).items():
        inside = [f for module in members for f in tree.functions(module)]
        if not inside:
            continue
        longest = max(inside, key=lambda f: f.lines)
        wide = [f for f in inside if f.parameters > MANY]
        plain = [f for f in wide if not f.is_kernel]
        private = [f for f in plain if not tree.is_door(f, doors)]
        classes = sum(len(tree.classes(module)) for module in members)
        yield (
            f"| {package} | {len(inside)} | {statistics.median(f.lines for f in inside):.0f} "
            f"| {longest.qualified} {longest.lines} | {len(wide)} | {len(plain)} "
            f"| {len(private)} | {classes} |"
        )


def wide_functions(product: list[Module]) -> list[Function]:
    """List the functions with many parameters that are neither kernels nor public doors."""
    doors = tree.public_doors(product)
    return [f for m in product for f in tree.functions(m) if is_wide(f, doors)]


def is_wide(function: Function, doors: set[str]) -> bool:
    """Tell whether a function should take a record instead of its many parameters."""
    if function.parameters <= MANY or function.is_kernel:
        return False
    return not tree.is_door(function, doors)


def signature_lines(product: list[Module]) -> Iterator[str]:
    """Yield the functions with many parameters, the widest first."""
    doors = tree.public_doors(product)
    wide = [f for m in product for f in tree.functions(m) if f.parameters > MANY]
    for f in sorted(wide, key=lambda f: (-f.parameters, f.at)):
        kind = "kernel" if f.is_kernel else "door" if tree.is_door(f, doors) else "-"
        yield f"{f.parameters:3} {kind:6} {f.at} {f.qualified}"


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


def duplicate_classes(product: list[Module]) -> dict[tuple[str, str], list[str]]:
    """Map (package, public class name) to the modules that define it, where there are two."""
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module in product:
        for name in set(tree.classes(module)):
            if not name.startswith("_"):
                homes[module.package, name].append(module.name)
    return {key: names for key, names in sorted(homes.items()) if len(names) > 1}


def duplicate_lines(product: list[Module]) -> Iterator[str]:
    """Yield the public class names that two modules of a package define."""
    found = duplicate_classes(product)
    yield f"{len(found)} names"
    yield from (f"{package}: {name} in {', '.join(ms)}" for (package, name), ms in found.items())


def single_lines(product: list[Module]) -> Iterator[str]:
    """Yield the modules that exactly one other module of the wheel imports."""
    importers: dict[str, set[str]] = defaultdict(set)
    for found in tree.imports(product):
        importers[found.target].add(found.source.name)
    single = [
        module
        for module in product
        if not module.is_package and len(importers[module.name] - {module.name}) == 1
    ]
    yield f"{len(single)} modules, {sum(module.lines for module in single):,} lines"
    for module in single:
        (only,) = importers[module.name]
        yield f"{module.name} ({module.lines}) <- {only}"


def _floors(found: Import) -> tuple[int, int] | None:
    """Return the floors of both ends of an import inside a package that has floors."""
    floors = plan.FLOOR.get(found.source.package, {})
    ends = []
    for name in (found.source.name, found.target):
        unit = plan.unit(name)
        ends.append(floors.get(OLD_ROOMS.get(unit, unit)))
    if found.target.split(".")[0] != found.source.package or None in ends:
        return None
    return ends[0], ends[1]


def upward(product: list[Module]) -> Iterator[Import]:
    """Yield the imports inside a package from a lower floor to a higher one."""
    for found in tree.imports(product):
        floors = _floors(found)
        if floors and floors[0] < floors[1]:
            yield found


def upward_lines(product: list[Module]) -> Iterator[str]:
    """Yield the arrows that point upward between floors."""
    found = list(upward(product))
    yield f"{len(found)} arrows (floors: tests/house/plan.py)"
    yield from (f"{i.at}: {i.source.name} -> {i.target}" for i in found)
    yield from (f"{a} and {b} import each other" for a, b in mutual(product))


def mutual(product: list[Module]) -> list[tuple[str, str]]:
    """List the pairs of rooms on one floor that import each other."""
    ways = set()
    for found in tree.imports(product):
        floors = _floors(found)
        here, there = plan.unit(found.source.name), plan.unit(found.target)
        if floors and floors[0] == floors[1] and here != there:
            package = found.source.package
            ways.add((f"{package}.{here}", f"{package}.{there}"))
    return sorted((a, b) for a, b in ways if a < b and (b, a) in ways)


def deep(product: list[Module]) -> Iterator[Import]:
    """Yield the imports of a file inside another room."""
    rooms = tree.rooms_by_package(product)
    for found in tree.imports(product):
        room = tree.room_of(found.target, rooms)
        home = (found.source.package, found.source.room)
        if room and (found.target.split(".")[0], room) != home and found.target.count(".") > 1:
            yield found


def door_lines(product: list[Module]) -> Iterator[str]:
    """Yield how many files of each room other rooms import, and their names."""
    entered: dict[str, set[str]] = defaultdict(set)
    for found in deep(product):
        package, room, inner = found.target.split(".", 2)
        entered[f"{package}.{room}"].add(inner)
    sizes = Counter(f"{m.package}.{m.room}" for m in product if not m.is_package)
    yield f"{sum(map(len, entered.values()))} of {sum(sizes[r] for r in entered)} files"
    for room, names in sorted(entered.items()):
        yield f"{room}: {len(names)} of {sizes[room]}: {' '.join(sorted(names))}"


def family_lines(product: list[Module]) -> Iterator[str]:
    """Yield how often the rooms of the loss family reach into each other, by direction."""
    rooms = {LIBRARY: set(LOSS_FAMILY)}
    found = [
        i
        for i in deep(product)
        if i.source.room in LOSS_FAMILY and tree.room_of(i.target, rooms) in LOSS_FAMILY
    ]
    inner = [i for i in found if not plan.is_open(i.target)]
    yield f"{len(found)} imports of a file, {len(inner)} of them past the named doors"
    ways = Counter((i.source.room, tree.room_of(i.target, rooms)) for i in found)
    yield from (f"{source} -> {target}: {n}" for (source, target), n in ways.most_common())


def outside(everything: list[Module]) -> Iterator[Import]:
    """Yield the imports of files inside a room by tests, benches and experiments."""
    rooms = tree.rooms_by_package(tree.shipped(everything))
    for found in tree.imports(everything):
        inside = tree.room_of(found.target, rooms) and found.target.count(".") > 1
        if found.source.package in ("tests", "bench", "experiments") and inside:
            yield found


def outside_lines(everything: list[Module]) -> Iterator[str]:
    """Yield how many imports of tests and benches name a file in a room, and which rooms."""
    found = list(outside(everything))
    inner = [i for i in found if not plan.is_open(i.target)]
    own = [i for i in inner if plan.opens_its_own(i.source.name, i.target)]
    yield f"{len(found)} imports name a file in a room, {len(inner)} of them no door"
    yield f"{len(own)} of these {len(inner)} by tests of the same room, as OPENED names them"
    ways = Counter(".".join(i.target.split(".")[:2]) for i in found)
    yield ", ".join(f"{room} {n}" for room, n in ways.most_common())


def container_lines(product: list[Module]) -> Iterator[str]:
    """Yield the types of the list above that the trainer defines, aliases included."""
    found = [
        f"{name} ({module.name})"
        for module in product
        if module.package == "rrgtrain" and module.room in CONTAINER_ROOMS
        for name in [*tree.classes(module), *tree.aliases(module)]
        if name in CONTAINERS
    ]
    yield f"{len(found)} of the types listed in tests/house/figures.py"
    yield from found


def json_calls(module: Module) -> Iterator[tuple[str, str]]:
    """Yield place and name of each call of json.load and json.loads."""
    for node in ast.walk(module.tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and called in ("json.load", "json.loads"):
            yield f"{module.where}:{node.lineno}", called
