"""Check that durations are those of a monotonic clock, whatever the time of day does."""

from __future__ import annotations

import ast
import itertools
import signal
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
