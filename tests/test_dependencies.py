"""The packages import what the default install brings, and it brings nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench import entity_match
from tests.house.tree import parse

ROOT = Path(__file__).parents[1]
OWN = {"rrgkern", "rrgclinical", "rrgdata", "rrgpolicy", "rrgreport", "rrgtrain"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Imported where a user asks for it, and told of where it is missing.
ASKED_FOR = {"bitsandbytes", "triton", "trl", "verl", "vllm"}
ASKED_FOR |= {"fastapi", "pycocoevalcap", "starlette", "uvicorn"}
# Asked beside ours by `eval --compare-implementations`.
ASKED_FOR |= {"radgraph", "rouge_score", "sacrebleu", "sklearn"}
# The published packages run in an environment of their own.
WORKER = ROOT / "python/rrgclinical/official/worker.py"
# torch.utils.tensorboard imports the first, pydicom the others where a file is compressed.
UNSEEN = {"tensorboard", "pylibjpeg", "pylibjpeg-openjpeg"}


def imported() -> Iterator[str]:
    """Yield the top-level names that the packages import from elsewhere."""
    for folder in ("rrgkern", "python"):
        for path in (ROOT / folder).rglob("*.py"):
            if path == WORKER:
                continue
            for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                yield from (name.partition(".")[0] for name in names)


def declared(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def test_the_default_install_is_what_the_packages_import() -> None:
    foreign = set(imported()) - OWN - ASKED_FOR - set(sys.stdlib_module_names)
    distributions = packages_distributions()
    wanted = {canonicalize_name(distributions[name][0]) for name in foreign}
    assert wanted | UNSEEN == declared(PROJECT["dependencies"])


def test_extras_are_not_in_the_default_install() -> None:
    extras = PROJECT["optional-dependencies"]
    core = declared(PROJECT["dependencies"])
    assert core & (declared(extras["test"]) | declared(extras["bench"])) == set()
    assert "sacrebleu" in declared(extras["test"]) and "matplotlib" in declared(extras["bench"])


def test_a_figure_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"pip install 'rrgkern\[bench\]'"):
        entity_match.linear(tmp_path / "figure.svg")


# Reading a table or writing a page loads neither torch nor what takes as long.
# these sources, whichever checkout is installed
SOURCES = str(Path(__file__).resolve().parents[1] / "python")
LOADED = """
import sys
import {modules}
heavy = {{"torch", "transformers", "scipy", "matplotlib", "rrgkern", "rrgtrain"}} & set(sys.modules)
print(*sorted(heavy))
"""


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("rrgdata, rrgreport, rrgpolicy", []),
        ("rrgtrain.run.init", ["rrgtrain"]),  # what is wrong with a table is said in a second
        ("rrgpolicy.vllm_worker", ["torch"]),
    ],
)
def test_a_package_loads_nothing_slow_that_it_does_not_need(modules, heavy):
    command = [sys.executable, "-c", LOADED.format(modules=modules)]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    assert subprocess.check_output(command, text=True, env=environment).split() == heavy
