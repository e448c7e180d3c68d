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


def test_comments_and_docstrings(everything):
    row = next(row for row in figures.prose_table(everything) if "rrgkern" in row)
    total = sum(text.count("\n") for name, text in TREE.items() if name.startswith("rrgkern"))
    assert row == f"| rrgkern | {total} | {1 / total:.1%} | {4 / total:.1%} |"


def test_the_report_has_every_section(everything, tmp_path):
    titles = [line for line in figures.report(tmp_path) if line.startswith("## ")]
    assert len(titles) == len(set(titles)) == 4


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
