"""Check that durations are those of a monotonic clock, whatever the time of day does."""

from __future__ import annotations

import ast
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rrgclinical.common.progress import progress
from rrgclinical.common.stop import Stopping
from rrgclinical.common.stopwatch import Stopwatch
from rrgreport.run_files import read_metrics
from rrgtrain.errors import Stopped
from rrgtrain.log.logs import RunLog
from rrgtrain.schema import CheckpointSettings
from rrgtrain.state.checkpointer import Checkpointer
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import CheckpointStore
from tests.house.tree import parse
from tests.rrgpolicy.model.common import tiny_policy

SOURCES = Path(__file__).resolve().parents[2] / "python"
DAY = 86_400.0
# The time of day as a mark for a person, of which no duration is made: file and function.
STAMPS = {("logs.py", "write"), ("outcome.py", "_finish"), ("client.py", "_record")}


@pytest.fixture
def jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of day jump by a day, forth and back, whenever it is asked for."""
    real, sign = time.time, itertools.cycle((1, -1))
    monkeypatch.setattr(time, "time", lambda: real() + next(sign) * DAY)


@pytest.mark.usefixtures("jumps")
def test_a_clock_that_jumps_changes_no_duration(tmp_path: Path) -> None:
    assert abs(time.time() - time.time()) > DAY, "it jumps"
    began = time.monotonic()
    watch, stopping, bar = Stopwatch(("train",)), Stopping(), progress(9, "sft")
    with RunDir.create(tmp_path / "run") as run, RunLog(run) as log:
        loop = Checkpointer(run, tiny_policy(), log, "sft", CheckpointSettings(seconds=600.0))
        loop.begin("sft", dict)
        with stopping.installed("rrgtrain"), stopping.deferred(), bar:
            signal.raise_signal(signal.SIGTERM)
            for step in range(3):
                with loop.step(step):
                    log.write("sft", step, {"loss": 0.0})
                    watch.lap("train")
                bar.advance()
            waited = stopping.waited()
            with pytest.raises(Stopped):
                stopping.check()
        assert not CheckpointStore(run.resume, 1).names(), "none was due"
        loop.finish("sft", {})
        store = CheckpointStore(run.resume, 1)
        found = store.newest()
        rows = read_metrics(run.metrics)
    took = time.monotonic() - began
    assert found is not None and waited is not None
    durations = [watch.total, waited, found.state["seconds"], found.about["written"]["seconds"]]
    assert all(0.0 <= seconds <= took for seconds in durations), durations
    assert abs(rows[1]["time"] - rows[0]["time"]) > DAY / 2, "a mark, of which nothing is made"


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
