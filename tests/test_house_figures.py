"""The lines that a run enters and the refusals are those that a hand counts."""

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
from tests.house import plan, trace, weight

ROOT = Path(__file__).parents[1]


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
