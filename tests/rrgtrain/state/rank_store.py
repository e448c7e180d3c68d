"""Write or read a checkpoint on some ranks; `test_identity` starts the processes."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from rrgpolicy.ranks import ranks
from rrgtrain.state.tree import PerRank
from tests.rrgtrain.state.saving import SavingStore

SHAPES = ((7, 3), (1,), (5, 200, 9), (2, 2))


def wholes() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def shards() -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (ranks.size(),))
    return [distribute_tensor(whole, mesh, [Shard(0)]) for whole in wholes()]


def state() -> dict[str, Any]:
    rank = ranks.rank()
    return {
        "sharded": shards(),
        # of plain tensors rank 0's count
        "plain": {"small": torch.tensor(rank), "large": torch.full((200, 200), float(rank))},
        "own": PerRank({"small": torch.tensor(rank), "large": torch.full((200, 200), rank)}),
        # of ranks that hold copies, the first ones' is written
        "copied": PerRank({"of": rank, "large": torch.full((200, 200), rank)}, 1),
        "number": rank,
    }


def write(store: SavingStore) -> None:
    store.save("rl-1", state())


def fail(store: SavingStore) -> None:
    """The disk of the last rank is full."""
    if ranks.rank() == ranks.size() - 1:

        def full(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        FileSystemWriter.write_data = full  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="No space left"):
        store.save("rl-2", state())


def overtake(store: SavingStore) -> None:
    """The shards change, and the ranks speak to each other, while all wait before their writing."""
    gate, real = threading.Event(), FileSystemWriter.write_data

    def write_data(*args: Any, **options: Any) -> Any:
        assert gate.wait(300)
        return real(*args, **options)

    FileSystemWriter.write_data = write_data  # type: ignore[method-assign, assignment]
    weights = state()
    path = store.begin("rl-1", weights)
    for shard in weights["sharded"]:
        shard.add_(1.0)
        assert torch.equal(shard.full_tensor(), shard.full_tensor())
    assert not any(ranks.gather(path.exists()))
    gate.set()
    store.wait()
    read(store)


def read(store: SavingStore) -> None:
    found = store.newest()
    assert found is not None
    like = shards()[0]
    values = found.read(*found.skeleton, like=like)
    for value, whole in zip(values["sharded"], wholes(), strict=True):
        assert value.placements == like.placements and value.device_mesh == like.device_mesh
        assert torch.equal(value.full_tensor(), whole)
    for value, whole in zip(found.state["sharded"], wholes(), strict=True):
        assert torch.equal(value, whole)
    assert values["number"] == 0 and int(values["plain"]["small"]) == 0
    assert not bool(values["plain"]["large"].any())
    (copied,) = values["copied"]
    assert copied["of"] == 0 and not bool(copied["large"].any())
    for rank, own in enumerate(values["own"]):
        # a rank that is new has the value of one that was there
        assert (own is None) == (rank != ranks.rank() % len(values["own"]))
        if own is not None:
            assert int(own["small"]) == rank and bool((own["large"] == rank).all())


def main(words: list[str]) -> int:
    """words: one of write, fail, overtake, read; and the directory of the store."""
    with ranks.opened("fsdp2", 60.0, cuda=False), ranks.propagate_errors():
        globals()[words[0]](SavingStore(Path(words[1]), 2))
    ranks.close()
    return 0
