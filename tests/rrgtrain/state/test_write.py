"""Checkpoints are written while training goes on, and a signal stops it between two steps."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter

from rrgclinical.common.stop import stopping
from rrgtrain.errors import Stopped
from rrgtrain.log.logs import RunLog
from rrgtrain.schema import CheckpointSettings
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import load_checkpoint
from tests.rrgtrain.runs import on_ranks
from tests.rrgtrain.state.saving import SavingStore
from tests.rrgtrain.state.test_checkpointer import Loop

MAIN = "tests.rrgtrain.state.rank_store"


class Gate:
    """Stops DCP's writer before it takes its first tensor, until `open` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None] = lambda: None):
        self._event, self.writes, self.reached = threading.Event(), 0, threading.Event()
        real = FileSystemWriter.write_data

        def write_data(*args: Any, **options: Any) -> Any:
            self.writes += 1
            self.reached.set()
            assert self._event.wait(300)
            then()
            return real(*args, **options)

        monkeypatch.setattr(FileSystemWriter, "write_data", write_data)
        self.open = self._event.set


@contextmanager
def loop_of(path: Path, made: int = 0, steps: int = 2) -> Iterator[Loop]:
    """A loop that has made so many steps."""
    with RunDir.create(path / "run") as run, RunLog(run) as log:
        yield Loop(run, log, CheckpointSettings(steps=steps, keep=9)).begun(made)


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(300, 300)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 300)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def copies(node: Any) -> Any:
    if isinstance(node, torch.Tensor):
        return node.detach().clone()
    return {key: copies(value) for key, value in node.items()}


def test_it_holds_the_bits_of_its_step_though_training_goes_on(tmp_path, monkeypatch):
    model, optimizer = trained()
    store = SavingStore(tmp_path / "resume", 2)
    for number in (1, 2):  # the second goes into the buffers of the first
        step(model, optimizer)
        state = {"weights": dict(model.named_parameters()), "optimizer": optimizer.state_dict()}
        weights, moments = copies(state["weights"]), copies(state["optimizer"]["state"])
        with monkeypatch.context() as patch:
            gate = Gate(patch)
            path = store.begin(f"rl-{number}", state)
            for _ in range(3):
                step(model, optimizer)
            assert not path.exists()
            gate.open()
            store.wait()
        found = load_checkpoint(path).state
        assert not torch.equal(model.weight, weights["weight"])
        for name, weight in weights.items():
            assert torch.equal(found["weights"][name], weight), name
        for index, values in moments.items():
            for name, value in values.items():
                assert torch.equal(found["optimizer"]["state"][index][name], value), name


def test_the_next_one_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loop_of(tmp_path) as loop:
        gate = Gate(monkeypatch)
        resume = loop.run.resume
        for _ in range(4):  # one is begun before the third step, and nothing waits for it
            loop.step()
        assert gate.reached.wait(300) and gate.writes == 1
        assert [p.name[0] for p in resume.iterdir()] == ["."]
        threading.Timer(0.2, gate.open).start()
        loop.step()
        assert "000001-rl-2" in {p.name for p in resume.iterdir()}
        loop.checkpointer.finish("rl", {})
        assert sorted(p.name for p in resume.iterdir()) == [
            *("000001-rl-2", "000002-rl-4", "000003-rl")
        ], "the end of a stage waits for all"


def test_an_error_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loop_of(tmp_path) as loop:
        gate = Gate(monkeypatch)
        for _ in range(3):
            loop.step()
        threading.Timer(0.2, gate.open).start()
        with pytest.raises(Stopped, match="rl, step 3: KeyError"), loop.checkpointer.running():
            loop.step(after=KeyError("x"))
        assert [p.name for p in loop.run.resume.iterdir()] == ["000001-rl-2"]


def test_a_disk_that_fills_up_ends_the_run_at_the_next_border(tmp_path, monkeypatch):
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with loop_of(tmp_path, 3) as loop:
        loop.checkpointer.wait()
        gate = Gate(monkeypatch, full)
        loop.step()
        loop.step()
        gate.open()
        while loop.checkpointer._store.writing:
            time.sleep(0.01)
        at = loop.at
        with pytest.raises(Stopped) as stopped:
            loop.step()
        assert loop.at == at, "no step is begun"
        assert str(stopped.value).startswith(
            f"no checkpoint could be written to {loop.run.resume}: No space left on device ("
        )
        assert "MiB to be written" in str(stopped.value)
        assert str(stopped.value).endswith("MiB free); the last one is 000001-rl-2; make room")
        assert [p.name for p in loop.run.resume.iterdir()] == ["000001-rl-2"]


def test_a_disk_without_room_is_not_written_to(tmp_path, monkeypatch):
    store = SavingStore(tmp_path / "resume", 2)
    written = Gate(monkeypatch)
    written.open()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3 << 20))
    with pytest.raises(OSError, match=r"\(4.0 MiB to be written, 3.0 MiB free\)") as refused:
        store.save("rl", {"weights": torch.zeros(1 << 20)})
    assert refused.value.errno == errno.ENOSPC and written.writes == 0
    assert not list(store.directory.iterdir())
    store.save("rl", {"weights": torch.zeros(1 << 19)})


def test_ranks_write_their_parts_while_they_train(tmp_path: Path) -> None:
    on_ranks("overtake", str(tmp_path / "resume"), cwd=tmp_path, main=MAIN, statuses=[0, 0])


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
    with loop_of(tmp_path, 2, steps=100) as loop:
        random, weight = torch.get_rng_state(), loop.weight.detach().clone()
        assert stopped_at(loop) == "stopped by SIGTERM after 2 steps of rl"
        state = loop.kept()
        assert (state["step"], state["loop"]) == (2, {"at": 2})
        assert torch.equal(state["random"][0]["torch"], random)
        assert torch.equal(state["weights"]["model.language_model.norm.weight"], weight)


def test_a_checkpoint_that_is_being_written_needs_no_other(tmp_path: Path) -> None:
    """It holds this step already."""
    with loop_of(tmp_path, 1, steps=1) as loop:
        assert stopped_at(loop) == "stopped by SIGTERM after 1 steps of rl"
        assert loop.names == ["000001-rl-1"]
