"""The rules of the house: functions from the root of a tree to the violations in it.

Each yields every violation but the exceptions that `plan.py` names; `over` holds back those that
a limit of `plan.LIMITS` still allows.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.house import plan, tools, tree, weight, words
from tests.house.tree import LIBRARY, Import, files, packages

LIBRARY_IMPORTS = {"torch", "numpy", "tvm_ffi", "triton"}
DOCTOR = "rrgkern.__main__"
Rule = Callable[[Path], Iterator[str]]


def over(rule: Rule, root: Path) -> list[str]:
    """Return the violations of a rule if there are more than its limit, else none."""
    violations = list(rule(root))
    limit = plan.LIMITS.get(rule.__name__, 0)
    if len(violations) <= limit:
        return []
    return [*violations, f"{rule.__name__}: {len(violations)} violations, at most {limit}"]


def rooms(root: Path) -> list[str]:
    """List the folders of rrgkern/ that hold a family of computations."""
    return [name for name in packages(root, LIBRARY) if name not in plan.SHARED]


def rooms_are_complete(root: Path) -> Iterator[str]:
    """Check that every room has its files, is exported, tested and benched."""
    init = root / LIBRARY / "__init__.py"
    exported = init.read_text() if init.exists() else ""
    for room in rooms(root):
        folder = root / LIBRARY / room
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
        if not list((root / "tests" / LIBRARY / room).glob("test_*.py")):
            yield f"room {room}: no test in tests/rrgkern/{room}"
        if not re.search(rf"^from rrgkern\.{room} import", exported, re.MULTILINE):
            yield f"room {room}: rrgkern/__init__.py exports nothing of it"
    for folder in sorted(p for p in (root / "csrc").glob("*/") if p.name not in plan.SHARED_CSRC):
        if folder.name not in rooms(root):
            yield f"csrc/{folder.name} belongs to no room"
        for name in (f"{folder.name}.h", "cpu.cc"):
            if not (folder / name).exists():
                yield f"csrc/{folder.name}: {name} is missing"
    folders = tree.package_folders(root) | {"experiments": "experiments"}
    for package, home in folders.items():
        tests = root / "tests" / package
        if (root / home).is_dir() and not list(tests.rglob("test_*.py")):
            yield f"{package}: no test in tests/{package}"
        for room in packages(root, home) if home != LIBRARY else ():
            folder = tests / plan.TESTS_OF.get(f"{package}.{room}", room)
            if not [*folder.rglob("test_*.py"), *tests.glob(f"test_{room}*.py")]:
                yield f"{package}.{room}: no test in tests/{package}/{room}"


def the_library_has_one_door(root: Path) -> Iterator[str]:
    """Check that rrgkern imports few packages, and that others take its public names alone.

    All else of imports is checked by import-linter, by the contracts of pyproject.toml.
    """
    everything = tree.modules(root)
    public = next((tree.exported(m) for m in everything if m.name == LIBRARY), set())
    for found in tree.imports(tree.shipped(everything)):
        here, top = found.source.package, found.target.split(".")[0]
        if here == LIBRARY:
            yield from _library_import(found)
        elif top == LIBRARY and found.target not in (LIBRARY, DOCTOR):
            yield f"{found.at}: {here} reaches into {found.target}, wanted `from rrgkern import`"
        elif found.target == LIBRARY and (hidden := sorted(found.names - public)):
            yield f"{found.at}: {', '.join(hidden)} is not in rrgkern.__all__"


def _library_import(found: Import) -> Iterator[str]:
    top = found.target.split(".")[0]
    if top not in LIBRARY_IMPORTS | {LIBRARY} and top not in sys.stdlib_module_names:
        yield f"{found.at}: rrgkern imports {found.target}"
    where = found.source.where
    if top == "triton" and not where.name.startswith("triton_") and "triton_lib" not in where.parts:
        yield f"{found.at}: only triton_*.py and triton_lib import triton"


def rooms_are_entered_by_their_doors(root: Path) -> Iterator[str]:
    """Check that no room imports an inner file of another room, of any package."""
    product = tree.shipped(tree.modules(root))
    for found in tree.deep(product):
        if not plan.is_open(found.target) and (found.source.name, found.target) not in plan.INNER:
            yield f"{found.at}: {found.target} is an inner file of another room"


def tests_and_benches_use_doors(root: Path) -> Iterator[str]:
    """Check that tests, benches and experiments import doors, so that an inner file can move.

    The tests of a room may open those of its own inner files that `plan.OPENED` names.
    """
    for found in tree.outside(tree.modules(root)):
        its_own = plan.opens_its_own(found.source.name, found.target)
        if not plan.is_open(found.target) and not its_own:
            yield f"{found.at}: {found.target} is an inner file"


def class_names_are_unique(root: Path) -> Iterator[str]:
    """Check that two modules of a package define no public class of the same name."""
    found = tree.duplicate_classes(tree.documented(tree.modules(root)))
    for (package, name), homes in found.items():
        if f"{package}:{name}" not in plan.SAME_NAME:
            yield f"{package}: class {name} is defined in {', '.join(homes)}"


def files_are_short(root: Path) -> Iterator[str]:
    """Check that no source file is longer than 400 lines."""
    for path in files(root, ".py", ".h", ".cc", ".cu"):
        where = path.relative_to(root).as_posix()
        lines = path.read_text().count("\n")
        if lines > plan.LONG_FILES.get(where, plan.FILE_LINES):
            yield f"{where} has {lines} lines, at most {plan.FILE_LINES}"


def rooms_take_their_section(root: Path) -> Iterator[str]:
    """Check that the trainer's functions take a section of the recipe, not the whole.

    `plan.LIMITS` says how many still take it.
    """
    for module in tree.shipped(tree.modules(root)):
        for function in tree.functions(module) if module.package == "rrgtrain" else ():
            for name in tree.annotated(function, "Recipe"):
                yield f"{function.at}: {function.qualified} takes the whole recipe as {name}"


def first_lines_are_plain(root: Path) -> Iterator[str]:
    """Check that a docstring's first line is short and does not begin with its relative clause."""
    for module in tree.modules(root):
        if module.package not in {*plan.PACKAGES, "bench", "experiments"}:
            continue
        for node, string in tree.docstrings(module):
            name = getattr(node, "name", "the module")
            if name.startswith("_"):
                continue
            words = str(string.value).strip().split("\n")[0].split()
            at = f"{module.where}:{string.lineno}: {name}"
            if len(words) > plan.FIRST_LINE_WORDS:
                yield f"{at}: the first line has {len(words)} words, at most 15"
            elif words and words[0].rstrip(",:") in plan.RIDDLES:
                yield f"{at}: the first line begins with {words[0]}, wanted verb and object"


def named_files_exist(root: Path) -> Iterator[str]:
    """Check that a file named in prose, a module named in a string or command is on the disk."""
    everything = tree.modules(root)
    known = {module.name: module.text for module in everything}
    ends = {end for path in files(root) for end in _ends(path.relative_to(root).parts)}
    for path in files(root, ".md", ".py", ".toml", ""):
        where = path.relative_to(root)
        if where.parts[0] in plan.NAMES_ELSEWHERE:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            named = set(_FILE_NAME.findall(line)) - plan.NOT_OURS
            for name in sorted(named) if path.suffix == ".md" else ():
                if name not in ends:
                    yield f"{where}:{number}: {name} is no file of the tree"
            for name in _COMMAND.findall(line):
                if name not in known and f"{name}.__main__" not in known:
                    yield f"{where}:{number}: {name} is no module of the tree"
    for module in everything:
        if module.where.parts[0] in plan.NAMES_ELSEWHERE:
            continue
        strings = (n for n in ast.walk(module.tree) if isinstance(n, ast.Constant))
        for node in strings:
            name = node.value if isinstance(node.value, str) else ""
            if name in plan.NOT_OURS or not _MODULE_NAME.fullmatch(name):
                continue
            home, _, member = name.replace(":", ".").rpartition(".")
            if name not in known and not re.search(rf"\b{member}\b", known.get(home, "")):
                yield f"{module.where}:{node.lineno}: {name} is no module of the tree"


_FILE_NAME = re.compile(r"(?<![\w./<*{-])\w[\w/.-]*\.(?:py|h|cc|cu|md)\b(?!\w)")
_MODULE_NAME = re.compile(
    r"(?:rrg(?:kern|clinical|phantom|train)|experiments|bench)(?:\.\w+)+(?::\w+)?"
)
_COMMAND = re.compile(
    r"python -m ((?:rrg(?:kern|clinical|phantom|train)|experiments|bench)[\w.]*)\b"
)


def _ends(parts: tuple[str, ...]) -> Iterator[str]:
    """Yield a path from each of its folders on, as prose may name it."""
    return ("/".join(parts[start:]) for start in range(len(parts)))


def no_paths_of_a_machine(root: Path) -> Iterator[str]:
    """Check that no tracked text names somebody's home, work or temporary directory."""
    pattern = re.compile(r"(?<![\w.])/(?:root|work|farm|Users/\w+|home/\w+)/\w")
    for path in files(root):
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if match := pattern.search(line):
                yield f"{path.relative_to(root)}:{number}: a path of one machine, {match[0]}..."


def json_has_one_reader(root: Path) -> Iterator[str]:
    """Check that `rrgclinical.common.json_reader` alone parses JSON: its errors are of one kind."""
    for module in tree.shipped(tree.modules(root)):
        yield from (
            f"{at}: {name}, which raises more than ValueError; use rrgclinical.common.json_reader"
            for at, name in tree.json_calls(module)
            if module.name not in plan.OWN_JSON
        )


def the_map_equals_the_disk(root: Path) -> Iterator[str]:
    """Check that CONTRIBUTING's map names what exists, all of the top level, and every room."""
    page = root / "CONTRIBUTING.md"
    named = map_entries(page.read_text()) if page.exists() else set()
    if not named:
        yield "CONTRIBUTING.md has no map: wanted a fenced block under a heading with the word map"
        return
    top = {path.relative_to(root).parts[0] for path in files(root)}
    wanted = {name for name in top if not name.startswith(".")}
    for folder in tree.package_folders(root).values():
        wanted |= {folder} | {f"{folder}/{room}" for room in packages(root, folder)}
    wanted |= {f"experiments/{name}" for name in packages(root, "experiments")}
    for name in sorted(wanted - named):
        yield f"CONTRIBUTING's map leaves out {name}"
    for name in sorted(named):
        if not (root / name).exists():
            yield f"CONTRIBUTING's map names {name}, which does not exist"


def map_entries(markdown: str) -> set[str]:
    """Read the paths in the map: the first fenced block under a heading with the word "map".

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


RULES: tuple[Rule, ...] = (
    rooms_are_complete,
    the_library_has_one_door,
    rooms_are_entered_by_their_doors,
    tests_and_benches_use_doors,
    class_names_are_unique,
    files_are_short,
    weight.weights_are_capped,
    rooms_take_their_section,
    json_has_one_reader,
    first_lines_are_plain,
    named_files_exist,
    no_paths_of_a_machine,
    the_map_equals_the_disk,
    *tools.RULES,
    *words.RULES,
)
