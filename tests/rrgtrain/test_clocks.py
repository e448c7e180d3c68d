"""Check that durations are those of a monotonic clock, whatever the time of day does."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import parse

SOURCES = Path(__file__).resolve().parents[2] / "python"
# The time of day as a mark for a person, of which no duration is made: file and function.
STAMPS = {("logs.py", "write"), ("outcome.py", "_finish"), ("client.py", "_record")}


def test_no_duration_is_made_of_the_time_of_day() -> None:
    asked = set()
    for path in SOURCES.rglob("*.py"):
        tree = parse(path.read_text())
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    name = ast.unparse(node.func)
                    if name == "time.time" or name.endswith("datetime.now"):
                        asked.add((path.name, function.name))
    assert asked == STAMPS


# Idle threads of a run leave the cores to other processes.
# What `main` does with every command; of torch, the library of its threads is loaded.
RUN = """
import ctypes
import importlib.util
import sys
from pathlib import Path
from rrgtrain.cli import reported

def command() -> int:
    assert "torch" not in sys.modules, "its threads would have been told already"
    spec = importlib.util.find_spec("torch")
    for library in (Path(spec.origin).parent / "lib").glob("libgomp*"):
        ctypes.CDLL(str(library))
    return 0

sys.exit(reported(command, ends_process=True))
"""


@pytest.mark.parametrize(
    ("variables", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "30000000000")],
)
def test_threads_spin_as_long_as_a_run_or_its_user_says(tmp_path, variables, spins):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "OMP_DISPLAY_ENV": "VERBOSE"}
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        environment.pop(name, None)
    root = Path(__file__).resolve().parents[2]
    environment["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "python")])
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env=environment | variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("torch's threads are not those of GNU's OpenMP")
    assert done.returncode == 0 and f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
