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
from rrgtrain.cli import parser
from rrgtrain.commands import COMMANDS
from rrgtrain.commands.command import INPUTS
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


MISSING = """
import sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "rrgkern")))  # no import finds them
from rrgtrain.cli import main
for words in {lines!r}:
    sys.stderr.write(f"{{main(words.split())}} ")
"""
TRAINED, THERE = "no such directory: gone", "gone does not exist; wanted"
GONE = {
    **dict.fromkeys(("rl --out r --from gone", "select --out r --from gone"), TRAINED),
    **dict.fromkeys(("eval --out r --from gone", "show a.png --from gone"), TRAINED),
    **dict.fromkeys(("generate gone .", "export gone --out r"), TRAINED),
    **dict.fromkeys(("init r --data a.png --policy gone", "demo policy.path=gone"), TRAINED),
    **dict.fromkeys(("generate model gone", "generate model . --context gone"), THERE),
    **dict.fromkeys(("show gone --from model", "init r --data gone", "data check gone"), THERE),
    **dict.fromkeys(("stress --reports gone", "stress --against gone"), THERE),
    "eval --predictions a=gone --references a.png": THERE,
    "eval --predictions a.png --references gone": THERE,
    "sft --out r data.source=nih data.root=gone": THERE,
    "check gone": f"model: REFUSED: {TRAINED}",
    "report gone": "no run in gone",
    "rl --resume gone": "no run in gone to resume",
    "rl --resume model rl.stps=2": "unknown key 'rl.stps'; did you mean rl.steps?",
}
for verb in ("demo", "plan", "serve", "stress", "sft --out r", "rl --out r --from model"):
    GONE[f"{verb} ./gone.yaml"] = "recipe './gone.yaml': no such file"
    GONE[f"{verb} rl.stps=2"] = "unknown key 'rl.stps'; did you mean rl.steps?"


def test_what_is_missing_is_told_before_anything_slow_is_loaded(tmp_path):
    """The order of imports, not seconds: torch and transformers cannot be loaded here."""
    (tmp_path / "model").mkdir()
    for name in ("model/config.json", "model/config.yaml", "a.png"):
        (tmp_path / name).write_text("{}")
    command = [sys.executable, "-uc", MISSING.format(lines=[*GONE])]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    lines = subprocess.check_output(
        command, cwd=tmp_path, env=environment, stderr=subprocess.STDOUT, text=True
    ).splitlines()
    for words, line in zip(GONE, lines, strict=False):
        assert GONE[words] in line, (words, line)
    assert lines[len(GONE) :] == ["2 "]


def test_each_word_that_names_an_input_is_looked_for():
    """`root` and `runs` are read by commands that load nothing slow, `model` by `check`."""
    for verb, command in COMMANDS.items():
        words = parser(verb)._subparsers._group_actions[0].choices[verb]._actions
        paths = {w.dest for w in words if w.type is Path or w.metavar in ("MODEL", "CHECKPOINT")}
        assert paths - {"out", "root", "runs", "model"} <= set(INPUTS), command.name
