"""The rules of the house, each a function from the root of a tree to the violations in it.

`test_house.py` runs them on this repository, and on small trees with a violation planted in them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Folders that serve several rooms, or the build, and are no room themselves.
SHARED = {"triton_lib"}
SHARED_CSRC = {"common", "build_info"}
LIBRARY_IMPORTS = {"torch", "numpy", "tvm_ffi", "triton", "rrgkern"}
DOCTOR = "rrgkern.__main__"


def files(root: Path, *suffixes: str) -> list[Path]:
    """Files of the tree that belong to it: tracked, or new and not ignored; all without git."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        paths = [root / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = list(root.rglob("*"))
    ours = (p for p in paths if p.is_file() and not p.is_relative_to(root / ".git"))
    return sorted(p for p in ours if not suffixes or p.suffix in suffixes)


def packages(root: Path, folder: str) -> list[str]:
    """Names of the packages directly inside `folder`."""
    top = root / folder
    inside = (p.relative_to(top).parts for p in files(root, ".py") if p.is_relative_to(top))
    return sorted({parts[0] for parts in inside if len(parts) > 1})


def rooms(root: Path) -> list[str]:
    """Folders of rrgkern/ that hold a family of computations."""
    return [name for name in packages(root, "rrgkern") if name not in SHARED]


def rooms_are_complete(root: Path) -> Iterator[str]:
    """Every room has its files, is exported, tested and benched; csrc folders belong to one."""
    init = root / "rrgkern" / "__init__.py"
    exported = init.read_text() if init.exists() else ""
    for room in rooms(root):
        folder = root / "rrgkern" / room
        wanted = [folder / name for name in ("__init__.py", "api.py", "reference.py", "README.md")]
        wanted.append(root / "bench" / f"{room}.py")
        sources = list(folder.rglob("*.py"))
        if any("custom_op(" in path.read_text() for path in sources):
            wanted.append(folder / "op.py")
        for path in wanted:
            if not path.exists():
                yield f"room {room}: {path.relative_to(root)} is missing"
        for path in sources:
            if "custom_op(" in path.read_text() and path.name != "op.py":
                yield f"room {room}: {path.relative_to(root)} registers an op outside op.py"
        if not list((root / "tests" / "rrgkern" / room).glob("test_*.py")):
            yield f"room {room}: no test in tests/rrgkern/{room}"
        if not re.search(rf"^from rrgkern\.{room} import", exported, re.MULTILINE):
            yield f"room {room}: rrgkern/__init__.py exports nothing of it"
    for folder in sorted(p for p in (root / "csrc").glob("*/") if p.name not in SHARED_CSRC):
        if folder.name not in rooms(root):
            yield f"csrc/{folder.name} belongs to no room"
        for name in (f"{folder.name}.h", "cpu.cc"):
            if not (folder / name).exists():
                yield f"csrc/{folder.name}: {name} is missing"
    for package in packages(root, "python/rrgtrain"):
        if not list((root / "tests" / "rrgtrain" / package).rglob("test_*.py")):
            yield f"rrgtrain.{package}: no test in tests/rrgtrain/{package}"


def imports_point_one_way(root: Path) -> Iterator[str]:
    """rrgkern knows neither the trainer nor its packages; the trainer knows its public names."""
    public = _public_names(root)
    edges: dict[str, set[str]] = {room: set() for room in rooms(root)}
    for path in files(root, ".py"):
        where = path.relative_to(root)
        for module, names, line in _imports(path):
            at, top = f"{where}:{line}", module.split(".")[0]
            if where.parts[0] == "rrgkern":
                if top not in LIBRARY_IMPORTS and top not in sys.stdlib_module_names:
                    yield f"{at}: rrgkern imports {module}"
                if top == "triton" and not _holds_kernels(where):
                    yield f"{at}: only triton_*.py and triton_lib import triton"
                if module.startswith("rrgkern.") and len(where.parts) > 2:
                    edges.get(where.parts[1], set()).add(module.split(".")[1])
            elif where.parts[:2] == ("python", "rrgtrain") and top == "rrgkern":
                if module not in ("rrgkern", DOCTOR):
                    yield f"{at}: rrgtrain reaches into {module}, wanted `from rrgkern import ...`"
                elif module == "rrgkern" and (hidden := sorted(names - public)):
                    yield f"{at}: {', '.join(hidden)} is not in rrgkern.__all__"
    yield from _cycles(edges)


def public_functions_have_docstrings(root: Path) -> Iterator[str]:
    """Every module, and every public function and class at its top level, says what it is."""
    for path in files(root, ".py"):
        where = path.relative_to(root)
        if where.parts[0] != "rrgkern" and where.parts[:2] != ("python", "rrgtrain"):
            continue
        tree = ast.parse(path.read_text())
        if tree.body and not ast.get_docstring(tree):
            yield f"{where}: the module has no docstring"
        for node in tree.body:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and not node.name.startswith("_")
                and not ast.get_docstring(node)
            ):
                yield f"{where}:{node.lineno}: {node.name} has no docstring"


def no_paths_of_a_machine(root: Path) -> Iterator[str]:
    """No tracked text names a home, work or temporary directory of somebody's machine."""
    pattern = re.compile(r"(?<![\w.])/(?:root|work|farm|Users/\w+|home/\w+)/\w")
    for path in files(root):
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if match := pattern.search(line):
                yield f"{path.relative_to(root)}:{number}: a path of one machine, {match[0]}..."


def readme_map_equals_the_disk(root: Path) -> Iterator[str]:
    """README's map names what exists, all of the top level, and every package."""
    readme = root / "README.md"
    named = map_entries(readme.read_text()) if readme.exists() else set()
    if not named:
        yield "README.md has no map: wanted a fenced block under a heading with the word map"
        return
    top = {path.relative_to(root).parts[0] for path in files(root)}
    wanted = {name for name in top if not name.startswith(".")}
    for folder in ("rrgkern", "python/rrgtrain"):
        wanted |= {f"{folder}/{package}" for package in packages(root, folder)}
    for name in sorted(wanted - named):
        yield f"README's map leaves out {name}"
    for name in sorted(named):
        if not (root / name).exists():
            yield f"README's map names {name}, which does not exist"


def map_entries(markdown: str) -> set[str]:
    """Paths named in the map: the first fenced block under a heading that holds the word "map".

    A line holds names, then two spaces or more, then what they are; deeper indentation stands
    for the folder above.
    """
    block = re.search(r"^#+[^\n]*\bmap\b[^\n]*\n.*?^```[^\n]*\n(.*?)^```", markdown, _FLAGS)
    entries: set[str] = set()
    parents: list[tuple[int, str]] = []
    for line in block[1].splitlines() if block else []:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        names = [name.rstrip("/") for name in re.split(r" {2,}", line.strip())[0].split()]
        parents = [parent for parent in parents if parent[0] < indent]
        prefix = parents[-1][1] + "/" if parents else ""
        entries |= {prefix + name for name in names}
        # `python/rrgtrain/` on one line also stands for `python`.
        entries |= {prefix + name.split("/")[0] for name in names if "/" in name}
        parents.append((indent, prefix + names[-1]))
    return entries


_FLAGS = re.MULTILINE | re.DOTALL | re.IGNORECASE


def _imports(path: Path) -> Iterator[tuple[str, set[str], int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, set(), node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or "", {alias.name for alias in node.names}, node.lineno


def _holds_kernels(where: Path) -> bool:
    return where.name.startswith("triton_") or "triton_lib" in where.parts


def _public_names(root: Path) -> set[str]:
    init = root / "rrgkern" / "__init__.py"
    for node in ast.parse(init.read_text()).body if init.exists() else []:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _cycles(edges: dict[str, set[str]]) -> Iterator[str]:
    """Rooms that reach themselves through the rooms they import."""
    for room in edges:
        seen: set[str] = set()
        ahead = edges[room] - {room}
        while ahead:
            seen |= ahead
            ahead = {n for name in ahead for n in edges.get(name, ()) if n != name} - seen
        if room in seen:
            yield f"room {room} imports itself through other rooms"


RULES = (
    rooms_are_complete,
    imports_point_one_way,
    public_functions_have_docstrings,
    no_paths_of_a_machine,
    readme_map_equals_the_disk,
)
