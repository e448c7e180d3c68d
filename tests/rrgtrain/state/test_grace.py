"""Check a signal's stop: at a border, with the step's first state, within its grace."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from rrgclinical.common.stop import stopping
from rrgtrain.errors import Stopped
from rrgtrain.log.logs import RunLog
from rrgtrain.schema import CheckpointSettings
from rrgtrain.state.checkpointer import Checkpointer
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import CheckpointStore
from tests.rrgtrain.state.test_checkpointer import Loop
from tests.rrgtrain.state.test_write import loop_of


def stopped_at(loop: Loop) -> str:
    """Stop the loop at a border in its next step; returns the line."""
    with stopping.installed("rrgtrain"), pytest.raises(Stopped) as stopped:
        stop_at_border(loop)
    return str(stopped.value)


def stop_at_border(loop: Loop) -> None:
    with loop.checkpointer.running(), loop.checkpointer.step(loop.at):
        torch.rand(3)  # the step has drawn, and nothing more
        loop.checkpointer.check_stop()
        signal.raise_signal(signal.SIGTERM)
        loop.checkpointer.check_stop()
        loop.weight.data.add_(1000.0)


def test_a_step_is_left_at_its_border_and_its_first_state_is_written(tmp_path: Path) -> None:
    with loop_of(tmp_path, steps=100) as loop:
        loop.step()
        loop.step()
        random, weight = torch.get_rng_state(), loop.weight.detach().clone()
        assert stopped_at(loop) == "stopped by SIGTERM after 2 steps of rl"
        state = loop.kept()
        assert (state["step"], state["loop"]) == (2, {"at": 2})
        assert torch.equal(state["random"][0]["torch"], random)
        kept = state["weights"]["model.language_model.norm.weight"]
        assert torch.equal(kept, weight)


def test_a_stop_without_the_time_for_a_checkpoint_says_what_is_lost(tmp_path: Path) -> None:
    with loop_of(tmp_path, steps=2) as loop:
        for _ in range(6):
            loop.step()
        loop.checkpointer.grace = 0.0
        line = stopped_at(loop)
        assert line.startswith("stopped by SIGTERM after 6 steps of rl"), "one was due at this step"
        loop.step()
        assert loop.names[-1] == "000003-rl-6"
        line = stopped_at(loop)
        assert line.startswith(
            "stopped by SIGTERM after 7 steps of rl; no checkpoint was written: "
        )
        assert "the speed of the last one, take " in line
        assert line.endswith(
            "0.0 s of state.grace=0 were left; the last one is 000003-rl-6, so 1 steps are lost"
        )
        assert loop.names[-1] == "000003-rl-6"


def test_the_speed_of_before_a_resume_counts(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "run") as run, RunLog(run) as log:
        for _ in range(2):
            loop = Loop(run, log, CheckpointSettings(steps=100))
            loop.checkpointer.grace = 0.0
            if loop.names:
                loop.checkpointer.resume()
            saved = loop.begin()
            loop.at = saved["at"] if saved else 0
            loop.step()
            line = stopped_at(loop)
            measured = "no checkpoint was written" in line
            assert measured == (saved is not None), "nothing was measured at first, so it tries"
        assert line.endswith("the last one is 000001-rl-1, so 1 steps are lost")


def test_a_checkpoint_that_is_being_written_needs_no_other(tmp_path: Path) -> None:
    """The wait for it takes the grace, and it holds this step already."""
    with loop_of(tmp_path, steps=1) as loop:
        loop.step()
        loop.checkpointer.grace = 0.0
        assert stopped_at(loop) == "stopped by SIGTERM after 1 steps of rl"
        assert loop.names == ["000001-rl-1"]


def test_an_error_has_no_grace(tmp_path: Path) -> None:
    with loop_of(tmp_path, steps=2) as loop:
        for _ in range(4):
            loop.step()
        loop.checkpointer.grace = 0.0
        with pytest.raises(Stopped, match="KeyError"):
            loop.step(before=KeyError("x"))
        assert loop.names[-1] == "000002-rl-4"
        assert isinstance(loop.checkpointer, Checkpointer)
        assert CheckpointStore(loop.run.resume, 9).about()["written"]["bytes"] > 0
