"""Read a tree of this repository: its files, modules, imports and definitions.

Nothing is imported or executed.
"""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Where the packages of the wheel lie, beside those that are found in python/.
LIBRARY = "rrgkern"
PYTHON = "python"

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def git(root: Path, *words: str) -> str:
    """Run git in a tree, with a committer of no name, and return what it prints."""
    command = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def files(root: Path, *suffixes: str) -> list[Path]:
    """List the files of the tree: tracked, or new and not ignored; all of them without git."""
    try:
        listed = git(root, "ls-files", "-co", "--exclude-standard", "-z")
        paths = [root / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = list(root.rglob("*"))
    ours = (p for p in paths if p.is_file() and not p.is_relative_to(root / ".git"))
    return sorted(p for p in ours if not suffixes or p.suffix in suffixes)


@functools.cache
def parse(text: str) -> ast.Module:
    """Parse a source text, once however many rules ask for it.

    CPython 3.11 raises SystemError (recursion depth mismatch) where a collection in between runs
    what other tests have left behind.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if collects:
            gc.enable()


@dataclass(frozen=True)
class Module:
    """A Python file: `where` from the root, dotted `name`, `text`."""

    where: Path
    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """Return the syntax tree."""
        return parse(self.text)

    @property
    def package(self) -> str:
        """Return the top-level package: rrgkern, rrgtrain, tests, bench, ..."""
        return self.name.split(".")[0]

    @property
    def room(self) -> str:
        """Return the folder directly inside the package; "" for a file beside the folders."""
        depth = 2 if self.where.parts[0] == PYTHON else 1
        return self.where.parts[depth] if len(self.where.parts) > depth + 1 else ""

    @property
    def lines(self) -> int:
        """Count the lines."""
        return self.text.count("\n")


@dataclass(frozen=True)
class Import:
    """An import of module `target` in `source`, at `line`; `names` are taken from the module."""

    source: Module
    target: str
    names: frozenset[str]
    line: int

    @property
    def at(self) -> str:
        """Return file and line."""
        return f"{self.source.where}:{self.line}"


def modules(root: Path) -> list[Module]:
    """Read every Python file of the tree that a dotted name can reach."""
    found = []
    for path in files(root, ".py"):
        where = path.relative_to(root)
        parts = where.with_suffix("").parts
        parts = parts[1:] if parts[0] == PYTHON else parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and len(where.parts) > 1:
            found.append(Module(where, ".".join(parts), path.read_text()))
    return found


def shipped(all_modules: list[Module]) -> list[Module]:
    """Select the modules of the wheel: rrgkern and the packages in python/."""
    return [m for m in all_modules if m.where.parts[0] in (LIBRARY, PYTHON)]


def documented(all_modules: list[Module]) -> list[Module]:
    """Select the modules of the wheel and the experiments, which are read as code too."""
    return [m for m in all_modules if m.where.parts[0] in (LIBRARY, PYTHON, "experiments")]


def package_folders(root: Path) -> dict[str, str]:
    """Map the packages of the wheel to their folders, from the root."""
    found = {LIBRARY: LIBRARY} if (root / LIBRARY).is_dir() else {}
    return found | {name: f"{PYTHON}/{name}" for name in packages(root, PYTHON)}


def packages(root: Path, folder: str) -> list[str]:
    """List the packages directly inside `folder`."""
    top = root / folder
    inside = (p.relative_to(top).parts for p in files(root, ".py") if p.is_relative_to(top))
    return sorted({parts[0] for parts in inside if len(parts) > 1})


@functools.cache
def _import_nodes(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [n for n in ast.walk(parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]


def imports(all_modules: list[Module]) -> Iterator[Import]:
    """Yield every import, also inside functions.

    `from a import b` of a module b is an import of `a.b`, unless `a` exports something called b.
    """
    named = {module.name: module for module in all_modules}
    for module in all_modules:
        for node in _import_nodes(module.text):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(module, alias.name, frozenset(), node.lineno)
            else:
                base = _absolute(module, node)
                own = exported(named[base]) if base in named else set()
                names = {a.name for a in node.names}
                submodules = {n for n in names - own if f"{base}.{n}" in named}
                for name in sorted(submodules):
                    yield Import(module, f"{base}.{name}", frozenset(), node.lineno)
                if names - submodules:
                    yield Import(module, base, frozenset(names - submodules), node.lineno)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + (module.where.name == "__init__.py")]
    return ".".join([*parts, *([node.module] if node.module else [])])


def room_of(target: str, all_rooms: dict[str, set[str]]) -> str:
    """Return the room of a dotted name, as `Module.room` does."""
    parts = target.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in all_rooms.get(parts[0], ()) else ""


def rooms_by_package(all_modules: list[Module]) -> dict[str, set[str]]:
    """Map each package to its rooms."""
    rooms: dict[str, set[str]] = {}
    for module in all_modules:
        rooms.setdefault(module.package, set()).update({module.room} - {""})
    return rooms


def exported(module: Module) -> set[str]:
    """Return the names in `__all__` of a module."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def docstrings(module: Module) -> Iterator[tuple[ast.Module | Definition, ast.Constant]]:
    """Yield every docstring with what it documents."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False):
            yield node, node.body[0].value


@dataclass(frozen=True)
class Function:
    """A function or method: `qualified` is `Class.method`."""

    module: Module
    qualified: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def at(self) -> str:
        """Return file and line."""
        return f"{self.module.where}:{self.node.lineno}"


def functions(module: Module) -> Iterator[Function]:
    """Yield every function of a module: methods and nested ones too."""

    def walk(node: ast.AST, prefix: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = prefix + child.name
                yield Function(module, name, child)
                yield from walk(child, name + ".")
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, prefix + child.name + ".")
            else:
                yield from walk(child, prefix)

    yield from walk(module.tree, "")


def annotated(function: Function, name: str) -> Iterator[str]:
    """Yield the parameters whose annotation names the class `name`."""
    arguments = function.node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        text = ast.unparse(argument.annotation) if argument.annotation else ""
        if re.search(rf"\b{name}\b", text):
            yield argument.arg


def deep(product: list[Module]) -> Iterator[Import]:
    """Yield the imports of a file inside another room."""
    rooms = rooms_by_package(product)
    for found in imports(product):
        room = room_of(found.target, rooms)
        home = (found.source.package, found.source.room)
        if room and (found.target.split(".")[0], room) != home and found.target.count(".") > 1:
            yield found


def outside(everything: list[Module]) -> Iterator[Import]:
    """Yield the imports of files inside a room by tests, benches and experiments."""
    rooms = rooms_by_package(shipped(everything))
    for found in imports(everything):
        inside = room_of(found.target, rooms) and found.target.count(".") > 1
        if found.source.package in ("tests", "bench", "experiments") and inside:
            yield found


def duplicate_classes(product: list[Module]) -> dict[tuple[str, str], list[str]]:
    """Map (package, public class name) to the modules that define it, where there are two."""
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module in product:
        for name in {node.name for node in module.tree.body if isinstance(node, ast.ClassDef)}:
            if not name.startswith("_"):
                homes[module.package, name].append(module.name)
    return {key: names for key, names in sorted(homes.items()) if len(names) > 1}


def json_calls(module: Module) -> Iterator[tuple[str, str]]:
    """Yield place and name of each call of json.load and json.loads."""
    for node in ast.walk(module.tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and called in ("json.load", "json.loads"):
            yield f"{module.where}:{node.lineno}", called
