"""Stages that a run by day leaves out are due again as soon as what they cover changes."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from tests.house import plan
from tests.house.tools import recipes
from tests.house.tree import files, git, parse

ROOT = Path(__file__).parents[1]
loader = SourceFileLoader("due", str(ROOT / ".ci" / "due"))
spec = importlib.util.spec_from_loader("due", loader)
assert spec is not None
due = importlib.util.module_from_spec(spec)
# no __pycache__ beside .ci/due
sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
loader.exec_module(due)
sys.dont_write_bytecode = before

COVERED: dict[str, list[str]] = due.covered((ROOT / ".ci" / "covers").read_text())
PACKAGES = (*plan.PACKAGES, "bench", "tests")


def files_of(stage: str) -> list[Path]:
    """List the Python files below tests that make names in a stage's commands."""
    words = ["slow", f"NAME={stage}"] if stage in ("ptx-short", "products") else [stage]
    command = ["make", "-n", "--no-print-directory", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    paths = {ROOT / path for path in re.findall(r"(?<=\s)tests/[\w/.]+", told)}
    folders = [file for path in paths if path.is_dir() for file in files(path, ".py")]
    return [*folders, *(path for path in paths if path.suffix == ".py")]


def imported(file: Path) -> set[str]:
    """Name the files of the tree that a file imports, from the root."""
    names = set()
    for node in ast.walk(parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    places = set()
    for name in names:
        if name.split(".")[0] in PACKAGES:
            top = "" if name.split(".")[0] in ("rrgkern", "bench", "tests") else "python/"
            path = top + name.replace(".", "/")
            places |= {p for p in (f"{path}.py", f"{path}/__init__.py") if (ROOT / p).exists()}
    return places


@pytest.mark.parametrize("stage", COVERED)
def test_a_stage_covers_what_its_tests_import(stage):
    tests = files_of(stage)
    assert tests
    needed = {test.relative_to(ROOT).as_posix() for test in tests} | set().union(
        *map(imported, tests)
    )
    missing = [n for n in sorted(needed) if not due.first_covered([n], COVERED[stage])]
    assert not missing
    assert not [path for path in COVERED[stage] if not (ROOT / path).exists()]


def test_each_stage_is_made_by_the_run_and_the_night():
    run, night = (ROOT / ".ci" / "run").read_text(), recipes(ROOT)["night"]
    listed = re.search(r"for stage in ([a-z -]+); do\s+case \" \$\(echo", run)
    assert listed is not None and set(listed[1].split()) == set(COVERED)
    assert ".ci/covers" in night and ".ci/green" in night


def commit(place: Path, name: str, text: str) -> str:
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-qm", name)
    return git(place, "rev-parse", "HEAD")


def stages_due(place: Path) -> list[str]:
    command = [sys.executable, str(place / ".ci" / "due")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_stage_is_due_when_a_file_that_it_covers_has_changed(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "due", tmp_path / ".ci")
    (tmp_path / ".ci" / "covers").write_text("# two\nparity: a b/c.py\noracle: d\nparity: e\n")
    green = commit(tmp_path, "b/c.py", "1")
    assert stages_due(tmp_path) == ["parity", "oracle"]  # no green night yet
    commit(tmp_path, ".ci/green", f"{green}\n")
    commit(tmp_path, "b/c.python", "other")
    assert stages_due(tmp_path) == []
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "new.py").write_text("no commit yet")
    assert stages_due(tmp_path) == ["oracle"]
    commit(tmp_path, "e", "2")
    assert stages_due(tmp_path) == ["parity", "oracle"]
    commit(tmp_path, ".ci/green", f"{'0' * 40}\n")
    assert stages_due(tmp_path) == ["parity", "oracle"]  # of a commit that is not here
    commit(tmp_path, ".ci/green", f"{commit(tmp_path, 'f', '3')}\n")
    assert stages_due(tmp_path) == []
    commit(tmp_path, "Makefile", "of all")
    assert stages_due(tmp_path) == ["parity", "oracle"]


def beside(place: Path, free: str, *stages: str) -> subprocess.CompletedProcess[str]:
    """Make stages by .ci/beside where a disk has so many GB left."""
    (place / ".ci").mkdir(exist_ok=True)
    shutil.copy(ROOT / ".ci" / "beside", place / ".ci")
    (place / "Makefile").write_text(
        "parity newest gates:\n\t@echo $@ with $(JOBS)\nslow:\n\t@echo $(NAME); exit 3\n"
    )
    for stage in ("parity", "newest"):
        (place / f".venv-{stage}").mkdir(exist_ok=True)
    (place / "df").write_text(f"#!/bin/sh\necho Avail\necho ' {free}'\n")
    (place / "df").chmod(0o755)
    path = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "MAKEFLAGS": ""}
    command = [place / ".ci" / "beside", *stages]
    return subprocess.run(command, capture_output=True, text=True, env=path)


def test_stages_beside_each_other_leave_the_disk_to_those_that_follow(tmp_path):
    enough = beside(tmp_path, "20G", "parity", "gates")
    assert enough.returncode == 0 and (tmp_path / ".venv-parity").exists()
    assert "parity with 1" in enough.stdout and "make gates: " in enough.stdout
    assert "gates with 2" in beside(tmp_path, "9G", "gates").stdout, "alone on both cores"
    short = beside(tmp_path, "9G", "parity", "products", "newest")
    assert short.returncode == 1 and "products\n" in short.stdout
    assert not (tmp_path / ".venv-parity").exists()


def test_the_image_is_made_of_what_is_there_for_the_cards_of_the_wheel():
    image, workflow = (
        (ROOT / name).read_text() for name in ("Dockerfile", ".github/workflows/wheels.yml")
    )
    copied = re.findall(r"^COPY ((?!--)[^\n]+) \S+$", image, re.MULTILINE)
    sources = {name for line in copied for name in line.split()}
    assert {"setup.py", "csrc", "rrgkern", "python", "recipes"} <= sources
    assert not [name for name in sources if not (ROOT / name).exists()]
    (cards,) = re.findall(r'RRGKERN_CUDA_ARCHS="([\d;]+)"', image)
    assert f'RRGKERN_CUDA_ARCHS: "{cards}"' in workflow and "docker build -t rrgkern ." in workflow
    (extras,) = re.findall(r"\.whl\)\[([\w,-]+)\]", image)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*extras.split(",")} <= {*project["optional-dependencies"]}
