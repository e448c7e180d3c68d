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
ASKED_FOR = {"bitsandbytes", "medspacy", "triton", "trl", "verl", "vllm"}
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
MEASURE = """
import resource, sys
import {modules}
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = {{"torch", "transformers", "scipy", "matplotlib", "rrgkern", "rrgtrain"}} & set(sys.modules)
print(used.ru_utime + used.ru_stime, *sorted(heavy))
"""


def in_a_new_process(modules: str) -> tuple[float, list[str]]:
    """Return seconds of processor of a new Python that imports them, and what it loaded."""
    command = [sys.executable, "-c", MEASURE.format(modules=modules)]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    seconds, *heavy = subprocess.check_output(command, text=True, env=environment).split()
    return float(seconds), heavy


def test_data_and_reports_import_in_the_time_of_a_few_numpy() -> None:
    # By turns, so that whatever else runs slows both; 0.35 s on an idle core.
    turns = [(in_a_new_process("rrgdata, rrgreport"), in_a_new_process("numpy")) for _ in range(3)]
    assert not any(heavy for (_, heavy), _ in turns)
    ours, numpy = (min(seconds for seconds, _ in side) for side in zip(*turns, strict=True))
    assert ours < 5 * numpy, f"{ours:.2f} s, numpy {numpy:.2f} s"


def test_the_policies_package_loads_nothing_and_the_worker_torch_alone() -> None:
    assert in_a_new_process("rrgpolicy")[1] == []
    assert in_a_new_process("rrgpolicy.vllm_worker")[1] == ["torch"]
