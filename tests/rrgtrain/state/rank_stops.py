"""End steps on two ranks by what only one of them meets; `test_identity` starts them."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.tensor import DTensor

from rrgclinical.common.stop import stopping
from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.sharding import full_state_dict
from rrgtrain.errors import Stopped
from rrgtrain.log.logs import NoLog, RunLog
from rrgtrain.schema import CheckpointSettings
from rrgtrain.state.checkpointer import Checkpointer
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import CheckpointStore
from tests.rrgtrain.state.rank_store import shards


def full(name: str) -> OSError:
    """Make the error of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)


@contextmanager
def checkpointer_of(path: Path) -> Iterator[Checkpointer]:
    """Keep a checkpoint at every step but the first; the body has to end in `Stopped`."""
    with ranks.main_first():
        run = RunDir.create(path) if ranks.is_main() else RunDir(path)
    log = RunLog(run) if ranks.is_main() else NoLog()
    policy: Any = SimpleNamespace(model=torch.nn.Linear(4, 4))
    made = Checkpointer(run, policy, log, "rl", CheckpointSettings(steps=1))
    line = "no stop"
    try:
        with made.running():
            made.begin("rl", dict)
            with made.step(0):
                pass
            yield made
    except Stopped as stopped:
        line = str(stopped)
    ranks.barrier()
    print(line, CheckpointStore(run.resume, 9).names())
    log.close()
    run.close()


def write_failure(home: Path) -> None:
    """The disk is full when rank 1 has left a border behind and rank 0 has not come to it."""
    gate, real = threading.Event(), FileSystemWriter.write_data

    def write_data(*_: Any, **__: Any) -> Any:
        assert gate.wait(300)
        raise full("part")

    FileSystemWriter.write_data = write_data  # type: ignore[method-assign, assignment]
    with checkpointer_of(home / "write failure") as checkpointer, checkpointer.step(1):
        if ranks.is_main():
            gate.set()
            while checkpointer._store.writing:
                time.sleep(0.01)
            checkpointer.check_stop()
        checkpointer.check_stop()
        gate.set()
        assert ranks.gather(1) == [1, 1], "what rank 0 gives at its end"
    FileSystemWriter.write_data = real  # type: ignore[method-assign]


def end_of_validation(home: Path) -> None:
    """Rank 0 cannot write its row when rank 1 has left the validation behind."""
    with checkpointer_of(home / "end of validation") as checkpointer:
        with checkpointer.interruptible(1):
            ranks.barrier()
            if ranks.is_main():
                raise full("metrics.jsonl")
        checkpointer.keep(1, [1])


def end_of_step(home: Path) -> None:
    """Rank 0 cannot write its row when rank 1 has left the step behind."""
    with checkpointer_of(home / "end of step") as checkpointer:
        with checkpointer.step(1):
            checkpointer.mark_dirty()
            if ranks.is_main():
                raise full("metrics.jsonl")
        ranks.broadcast_from_main("fine-tuning asks for the time")


def silence(home: Path) -> None:
    """Rank 1 does not answer while its part is written and rank 0 waits for that."""
    processes, real = ranks.gather(os.getpid()), FileSystemWriter.write_data

    def write_data(*words: Any, **options: Any) -> Any:
        if not ranks.is_main():
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(*words, **options)

    FileSystemWriter.write_data = write_data  # type: ignore[method-assign, assignment]
    try:
        with checkpointer_of(home / "silence") as checkpointer:
            checkpointer.finish("rl", {})
    except ranks.Lost as lost:
        print(lost)
        os.kill(processes[1], signal.SIGKILL)


def saving(home: Path) -> None:
    """A signal comes to rank 1 alone, between two tensors that all ranks gather to be saved."""
    calls, real = 0, DTensor.full_tensor

    def full_tensor(tensor: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 2 and not ranks.is_main():
            signal.raise_signal(signal.SIGTERM)
        return real(tensor)

    DTensor.full_tensor = full_tensor  # type: ignore[method-assign]
    state = {str(i): shard for i, shard in enumerate(shards())}
    with checkpointer_of(home / "saving") as checkpointer, checkpointer.interruptible(1):
        full_state_dict(state)
        ranks.barrier()


def main(words: list[str]) -> int:
    """words: a directory, and the names of cases."""
    timeout = 8.0 if words[1] == "silence" else 300.0
    with stopping.installed("rrgtrain"), ranks.opened("fsdp2", timeout, cuda=False):
        for name in words[1:]:
            globals()[name](Path(words[0]))
    ranks.close()
    return 0
