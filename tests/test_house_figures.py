"""The figures of the house are those that a hand counts in a small tree."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rrgtrain.run import room
from tests.house import figures, plan, trace, tree, weight

ROOT = Path(__file__).parents[1]
TREE = {
    "rrgkern/__init__.py": (
        'from rrgkern.logps import f\nfrom rrgkern.policy_loss import P\n__all__ = ["P", "f"]\n'
    ),
    "rrgkern/logps/__init__.py": "from rrgkern.logps.api import f\n",
    "rrgkern/logps/api.py": (
        '"""A.\n\nB.\n"""\n\n\ndef f(a, b, c, d, e, g, h):  # why\n    return (\n        a\n    )\n'
    ),
    "rrgkern/logps/tile.py": "import triton\n@triton.jit\ndef k(a, b, c, d, e, f, *, g): pass\n",
    "rrgkern/logps/op.py": "from rrgkern.logps import tile\ndef f(a, b, c, d, e, g, h): pass\n",
    "rrgkern/policy_loss/__init__.py": "from rrgkern.policy_loss.api import P\n",
    "rrgkern/policy_loss/api.py": (
        "import rrgkern.logps.tile\nfrom rrgkern.logps.api import f\nfrom ..logps import op\n"
        "class P:\n  def __init__(self, a, b, c, d, e, f, g): pass\n"
        "  def _m(self, a, b, c, d, e, f, g): pass\n"
    ),
    "python/rrgtrain/log/logs.py": "class Study: pass\nclass _Row: pass\n",
    "python/rrgtrain/train/rl.py": (
        "from rrgtrain.log.logs import Study as S\nclass Study: pass\nPart = tuple\n"
        "class Batch: pass\n"
    ),
    "python/rrgtrain/state/load.py": "def f():\n    import rrgtrain.train.rl\n",
    "tests/test_a.py": "from rrgkern.logps import api, tile\nfrom rrgtrain.log import logs\n",
}


@pytest.fixture
def everything(tmp_path):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tree.modules(tmp_path)


def test_rooms(everything):
    rows = list(figures.room_table(everything))
    assert "| rrgkern/logps | 4 | 16 | 2 | api 10 | 4 (3 without `__init__`) |" in rows
    assert [row.split(" |")[0] for row in rows[2:]] == [
        *("| rrgkern (beside its rooms)", "| rrgkern/logps", "| rrgkern/policy_loss"),
        *("| **rrgkern**", "| rrgtrain/log", "| rrgtrain/state", "| rrgtrain/train"),
        *("| **rrgtrain**", "| **tests**"),
    ]


def test_functions_with_many_parameters_are_kernels_doors_or_to_be_mended(everything):
    assert list(figures.signature_lines(tree.shipped(everything))) == [
        "  7 door   rrgkern/logps/api.py:7 f",
        "  7 -      rrgkern/logps/op.py:2 f",
        "  7 kernel rrgkern/logps/tile.py:3 k",
        "  7 door   rrgkern/policy_loss/api.py:5 P.__init__",
        "  7 -      rrgkern/policy_loss/api.py:6 P._m",
    ]
    rows = list(figures.function_table(everything))
    assert rows[2] == "| rrgkern | 5 | 1 | f 4 | 5 | 4 | 2 | 1 |"


def test_comments_and_docstrings(everything):
    row = next(row for row in figures.prose_table(everything) if "rrgkern" in row)
    total = sum(text.count("\n") for name, text in TREE.items() if name.startswith("rrgkern"))
    assert row == f"| rrgkern | {total} | {1 / total:.1%} | {4 / total:.1%} |"


def test_class_names_importers_arrows_and_containers(everything):
    product = tree.shipped(everything)
    assert list(figures.duplicate_lines(product)) == [
        "1 names",
        "rrgtrain: Study in rrgtrain.log.logs, rrgtrain.train.rl",
    ]
    assert "rrgkern.logps.op (2) <- rrgkern.policy_loss.api" in figures.single_lines(product)
    assert list(figures.upward_lines(product))[1:] == [
        "python/rrgtrain/state/load.py:2: rrgtrain.state.load -> rrgtrain.train.rl"
    ]
    assert list(figures.container_lines(product))[1:] == [
        "Batch (rrgtrain.train.rl)",
        "Part (rrgtrain.train.rl)",
    ]


def test_imports_past_the_doors(everything):
    assert list(figures.door_lines(tree.shipped(everything))) == [
        "5 of 5 files",
        "rrgkern.logps: 3 of 3: api op tile",
        "rrgtrain.log: 1 of 1: logs",
        "rrgtrain.train: 1 of 1: rl",
    ]
    assert list(figures.family_lines(tree.shipped(everything))) == [
        "3 imports of a file, 1 of them past the named doors",
        "policy_loss -> logps: 3",
    ]
    assert list(figures.outside_lines(everything)) == [
        "3 imports name a file in a room, 1 of them no door",
        "0 of these 1 by tests of the same room, as OPENED names them",
        "rrgkern.logps 2, rrgtrain.log 1",
    ]


def test_the_report_has_every_section(everything, tmp_path):
    titles = [line for line in figures.report(tmp_path) if line.startswith("## ")]
    assert len(titles) == len(set(titles)) == 12


def test_a_trace_counts_whole_functions_once_and_no_bodies_of_classes() -> None:
    entered = trace.Entered()
    with trace.profiled(entered):
        room.gib(1)
        room.gib(2)
    (before, lines, files, packages), (_, after, *_) = trace.rows(entered)
    assert (before, after, files) == ("before the first step", 0, 1)
    assert lines == len(inspect.getsource(room.gib).splitlines())
    assert packages == {"rrgtrain": lines}


@pytest.mark.gate
def test_a_run_enters_no_more_lines_than_its_cap() -> None:
    """Of all packages, so that a move from one into another gains nothing."""
    # in a process that has run nothing else
    command = [sys.executable, "-m", "tests.house", "--trace"]
    world = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=world)
    out = done.stdout
    before = int(re.search(r"first step: ([\d,]+) lines", out)[1].replace(",", ""))
    assert before <= plan.CAPS["before step 1"], out


def test_refusals_are_counted_by_line_and_once() -> None:
    source = (
        "if a:\n    raise A\nif b:\n    c()\ntry:\n    d()\n"
        "except E:\n    raise F(\n        g\n    )\n"
        "warnings.warn(h)\nif i:\n    raise I\nelse:\n    j()\n"
    )
    assert weight.refusal_lines(ast.parse(source)) == {1, 2, 7, 8, 9, 10, 11, 12, 13}
