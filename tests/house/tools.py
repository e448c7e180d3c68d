"""Rules about the tools: each reads every file that it is for, and each check runs in CI.

A tool skips folders by default lists of its own (pytest and ruff: `dist`, `build` and others), and
says nothing about it. So these rules compare its settings with what lies on the disk.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.house import plan
from tests.house.tree import files, package_folders, parse

# pytest's own list, in force where pyproject.toml has no norecursedirs.
NOT_ENTERED = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}")
# What leaves tests out, in the Makefile's own call or in a conftest.
LEFT_OUT = re.compile(r"--ignore|--deselect|\s-[km]\s|collect_ignore")
# What only `make gates` runs.
GATE = "@pytest.mark." + "gate"
PYLINT = ("tool", "ruff", "lint", "pylint")
# A comment that turns a tool off for a file.
TURNED_OFF = re.compile(r"^# (?:ruff: noqa|flake8: noqa|mypy: ignore-errors|fmt: off)", re.M)


def settings(root: Path, *keys: str) -> dict[str, Any]:
    """Read a table of pyproject.toml; empty where there is none."""
    path = root / "pyproject.toml"
    table = tomllib.loads(path.read_text()) if path.exists() else {}
    for key in keys:
        table = table.get(key, {})
    return table


def named_tests(root: Path) -> list[str]:
    """List the files that hold tests by their name, from the root."""
    names = (path.relative_to(root).as_posix() for path in files(root, ".py"))
    return [name for name in names if fnmatch.fnmatch(name.split("/")[-1], "test_*.py")]


def recipes(root: Path) -> dict[str, str]:
    """Map the targets of the Makefile to their recipe lines."""
    path = root / "Makefile"
    text = path.read_text().replace("\\\n", " ") if path.exists() else ""
    return {
        name: "\n".join(line for line in body.splitlines() if line.startswith("\t"))
        for names, body in re.findall(r"^([\w. -]+):(?!=)[^\n]*\n((?:\t[^\n]*\n)*)", text, re.M)
        for name in names.split()
        if not name.startswith(".")
    }


def in_ci(root: Path) -> set[str]:
    """Name the targets that `.ci/run` makes."""
    path = root / ".ci" / "run"
    text = path.read_text() if path.exists() else ""
    loops = re.findall(r"\bfor \w+ in ([\w -]+); do$|^\.ci/beside ([\w -]+) \$", text, re.M)
    alone = re.findall(r"^make ([a-z][\w-]*)", text, re.M)
    return {*alone, *(name for loop in loops for name in " ".join(loop).split())} - {
        "ptx-short",
        "products",
    }


def tests_are_collected(root: Path) -> Iterator[str]:
    """Check that `make test` collects every test file on the disk."""
    pytest_settings = settings(root, "tool", "pytest", "ini_options")
    patterns = pytest_settings.get("norecursedirs", NOT_ENTERED)
    command = recipes(root).get("test", "").split(" -m pytest", 1)[-1]
    if not command.endswith(" tests"):
        yield f"Makefile: make test does not run pytest on tests: {command.strip()!r}"
    if pytest_settings.get("testpaths") != ["tests"]:
        yield 'pyproject.toml: wanted testpaths = ["tests"]'
    for place, text in (
        ("Makefile: make test", command),
        ("pyproject.toml: addopts", str(pytest_settings.get("addopts", ""))),
        *(
            (str(p.relative_to(root)), p.read_text())
            for p in files(root)
            if p.name == "conftest.py"
        ),
    ):
        if left_out := LEFT_OUT.search(text):
            yield f"{place} leaves tests out: {left_out[0].strip()}"
    for name in named_tests(root):
        folders = name.split("/")[:-1]
        if folders[:1] != ["tests"]:
            yield f"{name} lies outside tests/"
        for folder in folders:
            if any(fnmatch.fnmatch(folder, pattern) for pattern in patterns):
                yield f"{name}: pytest enters no folder called {folder}"
    paths = re.findall(r"\stests/\S+", recipes(root).get("gates", ""))
    for name in named_tests(root):
        if GATE in (root / name).read_text() and not any(
            name == path.strip() or name.startswith(f"{path.strip()}/") for path in paths
        ):
            yield f"{name} has a gate, and make gates does not run it"


def sources_are_linted(root: Path) -> Iterator[str]:
    """Check that `make lint` reads every Python file, for style, format and imports."""
    command = [sys.executable, "-m", "ruff", "check", "--show-files", str(root)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout
    read = {Path(line).resolve() for line in listed.splitlines()}
    for path in files(root, ".py"):
        where = path.relative_to(root)
        if path.resolve() not in read:
            yield f"{where}: ruff does not read it"
        if off := TURNED_OFF.search(path.read_text()):
            yield f"{where}: {off[0]} turns a tool off for the file"
    for pattern in settings(root, "tool", "ruff", "format").get("exclude", []):
        if not pattern.endswith(".md"):
            yield f"pyproject.toml: ruff format leaves out {pattern}"
    lint = recipes(root).get("lint", "")
    for tool in ("ruff check .", "ruff format --check .", "mypy", "lint-imports --no-logo"):
        if not re.search(rf"(?:-m |/bin/){re.escape(tool)}$", lint, re.M):
            yield f"Makefile: make lint does not run {tool}"
    contracted = settings(root, "tool", "importlinter").get("root_packages", [])
    for package in package_folders(root).keys() - {*contracted}:
        yield f"pyproject.toml: import-linter does not read {package}"


def sources_are_type_checked(root: Path) -> Iterator[str]:
    """Check that mypy is given every Python file, and that no setting takes one away."""
    mypy = settings(root, "tool", "mypy")
    given = mypy.get("files", [])
    for path in files(root, ".py"):
        where = path.relative_to(root).as_posix()
        if not any(where == name or where.startswith(f"{name}/") for name in given):
            yield f"{where}: mypy does not read it"
    for table in [mypy, *mypy.get("overrides", [])]:
        for key in ("exclude", "ignore_errors", "follow_imports", "follow_untyped_imports"):
            if key in table:
                yield f"pyproject.toml: mypy's {key} takes files away"
        if table.get("disallow_untyped_defs") is False:
            yield from _untyped_launchers(root, table["module"])


def _untyped_launchers(root: Path, modules: list[str]) -> Iterator[str]:
    """Name the functions that lack types or take many, where tools pass over kernels."""
    for path in files(root, ".py"):
        where = path.relative_to(root)
        if not any(fnmatch.fnmatch(".".join(where.with_suffix("").parts), m) for m in modules):
            continue
        for node in ast.walk(parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and "jit" not in str(
                list(map(ast.unparse, node.decorator_list))
            ):
                taken = [x for x in ast.walk(node.args) if isinstance(x, ast.arg)]
                if None in (node.returns, *(x.annotation for x in taken if x.arg != "self")):
                    yield f"{where}: {node.name} is no kernel and lacks types"
                if len(taken) > (most := settings(root, *PYLINT).get("max-args", 5)):
                    yield f"{where}: {node.name} takes {len(taken)} parameters, at most {most}"


def checks_run_in_ci(root: Path) -> Iterator[str]:
    """Check that each target of the Makefile runs in CI, or is listed with the reason."""
    targets = {name for name in recipes(root) if re.fullmatch(r"[a-z][\w-]*", name)}
    for name in sorted(in_ci(root) - targets):
        yield f".ci/run makes {name}, which the Makefile does not have"
    for name in sorted(targets - in_ci(root) - plan.NOT_IN_CI.keys()):
        yield f"make {name} does not run in .ci/run, and NOT_IN_CI has no reason"
    for name in sorted(plan.NOT_IN_CI.keys() & in_ci(root)):
        yield f"make {name} runs in .ci/run: take it off NOT_IN_CI"


RULES = (tests_are_collected, sources_are_linted, sources_are_type_checked, checks_run_in_ci)
