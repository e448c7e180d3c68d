"""Checkpoints come when due; a step that fails before or in its change keeps what it began with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgpolicy.ranks.sharding import load_weights
from rrgreport.run_files import read_metrics
from rrgtrain.errors import NotFinite, Stopped, UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.schema import CheckpointSettings
from rrgtrain.state.checkpointer import Checkpointer, require_verb
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import CheckpointStore
from tests.rrgpolicy.model.common import tiny_policy


class Loop:
    """A loop that adds 1 to a weight a step."""

    def __init__(self, run: RunDir, log: RunLog, settings: CheckpointSettings) -> None:
        self.run, self.log, self.now = run, log, 0.0
        self.policy = tiny_policy()
        self.weight = self.policy.language_model.norm.weight
        self.checkpointer = Checkpointer(
            run, self.policy, log, "rl", settings, clock=lambda: self.now
        )
        self.at = 0

    def begin(self) -> dict[str, Any] | None:
        return self.checkpointer.begin("rl", lambda: {"at": self.at})

    def begun(self, steps: int = 0) -> Loop:
        """Begin, and make so many steps."""
        self.begin()
        for _ in range(steps):
            self.step()
        return self

    def step(self, *, before: Exception | None = None, after: Exception | None = None) -> None:
        with self.checkpointer.step(self.at):
            self.checkpointer.on_failure_dump(lambda: {"members": []})
            if before is not None:
                raise before
            self.checkpointer.mark_dirty()
            with torch.no_grad():
                self.weight.add_(1.0)
            if after is not None:
                raise after
            self.log.write("rl", self.at, {"reward": float(self.weight.detach()[0])})
            self.at += 1

    @property
    def names(self) -> list[str]:
        self.checkpointer.wait()
        return CheckpointStore(self.run.resume, 9).names()

    def kept(self) -> Any:
        self.checkpointer.wait()
        newest = CheckpointStore(self.run.resume, 9).newest()
        assert newest is not None
        return newest.state


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    with RunDir.create(tmp_path / "my run") as made:  # a command names it in quotes
        yield made


@pytest.fixture
def log(run: RunDir) -> Iterator[RunLog]:
    with RunLog(run) as made:
        yield made


def test_due_by_steps_or_by_seconds(run: RunDir, log: RunLog) -> None:
    loop = Loop(run, log, CheckpointSettings(steps=3, seconds=100.0, keep=9)).begun(7)
    assert loop.names == ["000001-rl-3", "000002-rl-6"]
    loop.now = 99.0
    loop.step()
    assert len(loop.names) == 2
    loop.now = 100.0
    loop.step()
    assert loop.names[2:] == ["000003-rl-8"]
    loop.step()
    assert len(loop.names) == 3, "both are counted from the last one"


def test_a_step_that_fails_before_the_change_is_kept_as_it_began(run: RunDir, log: RunLog) -> None:
    loop = Loop(run, log, CheckpointSettings(steps=100)).begun(1)
    start = loop.weight.detach().clone()
    with pytest.raises(Stopped, match=r"rl, step 1: KeyError: 'x' \(traceback in .*rl-1.txt\)"):
        loop.step(before=KeyError("x"))
    state = loop.kept()
    assert (state["stage"], state["step"], state["loop"]) == ("rl", 1, {"at": 1})
    assert any(torch.equal(w, start) for w in state["weights"].values() if w.shape == start.shape)
    kept = r"rl, step 1: odd; its batch is kept in .*/my run/failures/rl-1; "
    with pytest.raises(NotFinite, match=kept + r"with .* --resume '.*/my run' rl.lr="):
        loop.step(before=NotFinite("odd"))


def ended(loop: Loop, body: Callable[[], None]) -> Exception:
    """Run a body in a loop; return what it ends with."""
    with pytest.raises(Exception) as caught, loop.checkpointer.running():
        body()
    return caught.value


def test_an_error_between_two_steps_keeps_the_last_whole_one(run: RunDir, log: RunLog) -> None:
    """Such as a bar that cannot be drawn, or whatever a loop does outside its steps."""
    for at, error in ((2, KeyError("x")), (4, UserError("no"))):
        loop = Loop(run, log, CheckpointSettings(steps=100, keep=9))
        loop.at = at - 2
        before = len(loop.names)

        def body(loop: Loop = loop, error: Exception = error) -> None:
            loop.begun(2)
            raise error

        end = ended(loop, body)
        assert isinstance(end, Stopped) and f"rl, step {at}: " in str(end)
        state = loop.kept()
        assert (state["step"], state["loop"]) == (at, {"at": at})
        assert len(loop.names) == before + 1
        weight = loop.weight.detach()
        assert any(torch.equal(w, weight) for w in state["weights"].values())


def test_an_error_behind_a_validation_keeps_what_was_before_it(run: RunDir, log: RunLog) -> None:
    loop = Loop(run, log, CheckpointSettings(steps=100))
    sizes = []

    def body() -> None:
        loop.begun(1)
        sizes.append(log.size)
        with loop.checkpointer.interruptible(loop.at):
            log.write("rl_val", 0, {"reward": 1.0})
        raise KeyError("x")

    assert isinstance(ended(loop, body), Stopped)
    assert loop.kept()["metrics"] == sizes[0], "the validation is done again"


def test_before_a_loop_stands_an_error_keeps_nothing(run: RunDir, log: RunLog) -> None:
    loop = Loop(run, log, CheckpointSettings(steps=100))

    def body() -> None:
        loop.begin()
        raise KeyError("half loaded")

    assert isinstance(ended(loop, body), KeyError)
    assert loop.names == []


def test_a_step_that_fails_in_the_change_is_not(run: RunDir, log: RunLog) -> None:
    loop = Loop(run, log, CheckpointSettings(steps=1)).begun(2)
    assert loop.names == ["000001-rl-1"]
    with pytest.raises(Stopped, match="the step was half done, so the last checkpoint counts"):
        loop.step(after=MemoryError("out of memory"))
    assert loop.names[-1] == "000002-rl-2", "the one due before the step, and none after it"
    assert loop.kept()["loop"] == {"at": 2}
    kept = loop.kept()["weights"]["model.language_model.norm.weight"]
    assert float(loop.weight.detach()[0]) == float(kept[0]) + 1


def test_a_resumed_loop_goes_on_with_weights_place_and_log(run: RunDir, log: RunLog) -> None:
    loop = Loop(run, log, CheckpointSettings(steps=2)).begun(4)
    loop.checkpointer.wait()
    before = float(loop.weight[0])
    again = Loop(run, log, CheckpointSettings(steps=2))
    assert again.checkpointer.resume() == "at step 2 of rl" and again.checkpointer.within == "rl"
    assert len(read_metrics(run.metrics)) == 2, "steps 2 and 3 will be logged again"
    assert float(again.weight[0]) == before - 4, "a reference may still be taken of the start"
    assert again.begin() == {"at": 2} and again.checkpointer.within is None
    assert float(again.weight[0]) == before - 2
    again.checkpointer.finish("rl", {"best": 1})
    third = Loop(run, log, CheckpointSettings())
    assert third.checkpointer.resume() == "after rl"
    assert (
        third.checkpointer.result("rl") == {"best": 1} and third.checkpointer.result("sft") is None
    )
    assert float(third.weight[0]) == before - 2


def test_kept_weights_stay_until_others_are_wanted(run: RunDir, log: RunLog) -> None:
    loop = Loop(run, log, CheckpointSettings(steps=1, keep=1)).begun(1)
    best = float(loop.weight.detach()[0])
    assert loop.checkpointer.keep(1, {1})
    loop.checkpointer.wait()
    for _ in range(3):
        loop.step()
    assert loop.names == ["000001-rl-1", "000003-rl-3"]
    again = Loop(run, log, CheckpointSettings(steps=1, keep=1))
    again.checkpointer.resume()
    again.begin()
    again.at = 3
    again.step()
    again.step()
    assert again.names == ["000001-rl-1", "000004-rl-4"], "a resumed run wants them too"
    again.checkpointer.restore(1)
    assert float(again.weight.detach()[0]) == best
    again.checkpointer.wait()
    part = run.resume / "000001-rl-1" / "state.pt"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(
        UserError, match=r"rl-1 holds the best weights and is broken \(state.pt has"
    ):
        again.checkpointer.restore(1)
    with pytest.raises(UserError, match=r"rl-1 holds the best weights and is broken"):
        again.checkpointer.require(1)
    assert again.checkpointer.keep(5, {5})
    again.checkpointer.require(5)
    assert again.names == ["000005-rl-5"]


def test_kept_weights_are_not_those_that_the_loop_went_back_to(run: RunDir, log: RunLog) -> None:
    """After sft.drops a step that fails has other weights than the validation of its number."""
    loop = Loop(run, log, CheckpointSettings(steps=100, keep=1))
    loop.begin()
    for step in (1, 2):
        loop.step()
        loop.checkpointer.keep(step, {1, 2})
    validated = float(loop.weight.detach()[0])
    loop.checkpointer.restore(1)
    with pytest.raises(Stopped):
        loop.step(before=Stopped("stopped by SIGTERM"))
    assert loop.names == ["000001-rl-1", "000002-rl-2", "000003-rl-2"]
    loop.checkpointer.restore(2)
    assert float(loop.weight.detach()[0]) == validated


def test_a_run_of_another_command_or_policy(run: RunDir, log: RunLog) -> None:
    require_verb(run, "sft")  # nothing was begun
    loop = Loop(run, log, CheckpointSettings(steps=1))
    loop.checkpointer.settings = {"seed": "0"}
    loop.begun(2).checkpointer.wait()
    require_verb(run, "rl")
    assert CheckpointStore(run.resume, 1).about()["settings"] == {"seed": "0"}
    with pytest.raises(UserError, match="another command; use: rrgtrain rl --resume '.*/my run'$"):
        require_verb(run, "sft")
    weights = {"model.language_model.norm.weight": torch.zeros(3)}
    with pytest.raises(UserError, match=r"norm.weight \[3\], but the policy has \[64\]; resume"):
        load_weights(loop.policy, weights)
    with pytest.raises(UserError, match=r"holds nowhere \[3\], but the policy has no such weight"):
        load_weights(loop.policy, {"nowhere": torch.zeros(3)})
