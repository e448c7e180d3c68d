"""Metrics rows survive crashes, keep NaN readable and agree with TensorBoard."""

from __future__ import annotations

import json
import logging
import math
import time

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rrgreport.run_files import read_metrics
from rrgtrain.errors import UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.state.rundir import RunDir


def scalars(run: RunDir, phase: str, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(run.events / phase))
    events.Reload()
    return [(e.step, e.value) for e in events.Scalars(tag)]


def test_rows_and_tensorboard_agree(run: RunDir) -> None:
    with RunLog(run) as log:
        log.write("sft", 1, {"loss": 2.5})
        assert len(read_metrics(run.metrics)) == 1, "on disk before the log is closed"
        log.write("rl", 1, {"reward": torch.tensor(0.25), "edits/a": 3})
        log.write("rl", 2, {"reward": 0.5})
    rows = read_metrics(run.metrics)
    assert [(r["phase"], r["step"]) for r in rows] == [("sft", 1), ("rl", 1), ("rl", 2)]
    assert rows[1]["reward"] == 0.25 and rows[1]["edits/a"] == 3.0
    assert rows[0]["time"] <= rows[2]["time"]
    assert scalars(run, "rl", "reward") == [(1, 0.25), (2, 0.5)]
    assert scalars(run, "sft", "loss") == [(1, 2.5)]


def test_non_finite_values_are_explicit_and_come_back(run: RunDir) -> None:
    with RunLog(run) as log:
        log.write("rl", 1, {"kl": math.nan, "ratio": math.inf, "low": -math.inf, "ok": 1.0})
    line = json.loads(run.metrics.read_text(), parse_constant=pytest.fail)
    assert (line["kl"], line["ratio"], line["low"]) == ("nan", "inf", "-inf")
    row = read_metrics(run.metrics)[0]
    assert math.isnan(row["kl"]) and row["ratio"] == math.inf and row["low"] == -math.inf


def test_torn_last_line_is_skipped_said_and_cut_before_appending(run, caplog):
    with RunLog(run) as log:
        log.write("sft", 1, {"loss": 1.0})
    with run.metrics.open("a") as file:
        file.write('{"phase": "sft", "st')
    with caplog.at_level(logging.WARNING):
        assert [r["step"] for r in read_metrics(run.metrics)] == [1]
    assert "metrics.jsonl:2: last line is torn" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING), RunLog(run) as log:
        log.write("sft", 2, {"loss": 0.5})
    assert "torn (20 bytes); cut off" in caplog.text
    assert [r["step"] for r in read_metrics(run.metrics)] == [1, 2]


@pytest.mark.parametrize(
    "broken", ["{oops", '{"loss": 1.0}', "[1]", '{"phase":"a","step":1,"time":0,"x":"y"}']
)
def test_broken_line_in_the_middle_is_an_error_with_its_place(run: RunDir, broken: str) -> None:
    run.metrics.write_text(f'{broken}\n{{"phase": "sft", "step": 1, "time": 0}}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl:1: not a metrics row") as caught:
        read_metrics(run.metrics)
    assert "\n" not in str(caught.value)


def test_rewind_drops_what_a_resume_logs_again(run: RunDir) -> None:
    with RunLog(run) as log:
        log.write("sft", 5, {"loss": 9.0})
        log.write("rl", 1, {"reward": 0.1})
        log.write("val", 1, {"f1": 0.01})
        size = log.size
        for step in (2, 3):
            log.write("rl", step, {"reward": step / 10})
            log.write("val", step, {"f1": step / 100})
    # TensorBoard reads a folder's files in the order of the second in their names.
    time.sleep(1.01)
    with RunLog(run) as log:
        assert log.rewind_to(log.size) == 0
        assert log.rewind_to(size) == 4
        assert log.size == size
        log.write("rl", 2, {"reward": 0.7})
    rows = read_metrics(run.metrics)
    assert [(r["phase"], r["step"]) for r in rows] == [("sft", 5), ("rl", 1), ("val", 1), ("rl", 2)]
    assert rows[-1]["reward"] == 0.7
    assert scalars(run, "rl", "reward") == [(1, pytest.approx(0.1)), (2, pytest.approx(0.7))]
    assert scalars(run, "val", "f1") == [(1, pytest.approx(0.01))]
    assert scalars(run, "sft", "loss") == [(5, 9.0)]


def test_rewind_over_a_torn_line_and_to_nothing(run: RunDir) -> None:
    with RunLog(run) as log:
        log.write("sft", 1, {"loss": 1.0})
        size = log.size
        log.write("sft", 2, {"loss": 1.0})
    with run.metrics.open("a") as file:
        file.write('{"phase": "sf')
    with RunLog(run) as log:
        with pytest.raises(UserError, match=r"has \d+ bytes, and had 999 when .* put the whole"):
            log.rewind_to(999)
        assert log.rewind_to(size) == 1
        assert log.rewind_to(0) == 1
        log.write("sft", 1, {"loss": 2.0})
    assert [r["loss"] for r in read_metrics(run.metrics)] == [2.0]


def test_rewind_drops_also_what_is_no_row(run: RunDir) -> None:
    """A power cut leaves zeros in the middle of what was not yet on the disk."""
    with RunLog(run) as log:
        log.write("rl", 0, {"reward": 0.0})
        size = log.size
        with run.metrics.open("ab") as file:
            file.write(b"\0" * 40 + b"\n")
        log.write("rl", 1, {"reward": 1.0})
        assert log.rewind_to(size) == 1
    assert [row["step"] for row in read_metrics(run.metrics)] == [0]
