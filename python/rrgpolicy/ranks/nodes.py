"""Lay out the ranks of several nodes: who shares weights, who comes first.

torchrun gives the processes of a node consecutive ranks, and says in LOCAL_WORLD_SIZE how many
there are. Weights are sharded over `scale.shard` of them, by default those of a node (HSDP).
"""

from __future__ import annotations

import datetime
import functools
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rrgclinical.common.errors import UserError
from rrgpolicy.ranks import ranks

# A name that nobody has asked for before is looked up on the server, also by NFS.
SEEN_WITHIN = 3.0


def processes_here() -> int:
    """Return the number of processes that torchrun has started on this node."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks.processes()))


def is_first_here() -> bool:
    """Tell the first process of each node."""
    return int(os.environ.get("LOCAL_RANK", ranks.rank())) == 0


def own_device(asked: str) -> str:
    """Name the device that `asked` is here; `auto` is a GPU where there is one.

    A GPU is named with its index: "cuda" alone is the first one in every new thread.
    """
    if asked in ("auto", "cuda") and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu" if asked == "auto" else asked


def count() -> int:
    """Count the nodes; all ranks ask at once."""
    return sum(ranks.gather(is_first_here()))


def shard_size(asked: int | None) -> int:
    """Choose how many consecutive ranks share one copy of the weights.

    All ranks ask at once.

    asked: `scale.shard`; None is a node where there are several, else all ranks. Raises UserError
    where the ranks cannot be cut into equal groups.
    """
    total = ranks.size()
    here = ranks.gather(processes_here())
    if asked is not None:
        if total % asked:
            fits = ", ".join(str(n) for n in range(1, total + 1) if total % n == 0)
            raise UserError(
                f"scale.shard={asked} does not divide {total} processes; use one of {fits}"
            )
        return asked
    if count() == 1:
        return total
    if len(set(here)) > 1:
        raise UserError(
            f"nodes have {' and '.join(map(str, sorted(set(here))))} processes; start as many on "
            f"each, or set scale.shard to a number that divides {total}"
        )
    return here[0]


def mesh(device: str, shard: int) -> Any:
    """Make the DeviceMesh of weights that are sharded over `shard` ranks.

    It has two dimensions if that is not all. device: its type. Policies of one layout share a
    mesh. All ranks ask at once.
    """
    return _mesh(dist.group.WORLD, device, shard, ranks.size())


@functools.lru_cache(maxsize=4)
def _mesh(world: Any, device: str, shard: int, size: int) -> Any:
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    if shard == size:
        return init_device_mesh(device, (size,))
    places = torch.arange(size).view(-1, shard)
    # groups made by the mesh itself would wait for PyTorch's half hour
    timeout = datetime.timedelta(seconds=ranks.timeout())
    across, _ = dist.new_subgroups_by_enumeration(places.T.tolist(), timeout=timeout)
    within, _ = dist.new_subgroups_by_enumeration(places.tolist(), timeout=timeout)
    names = ("replicate", "shard")
    return DeviceMesh.from_group([across, within], device, places, mesh_dim_names=names)


def require_shared(directory: Path) -> None:
    """Raise UserError where a node does not see what rank 0 writes in `directory`.

    Ranks look for it up to `SEEN_WITHIN` seconds. All ask at once; nothing is made where the
    directory is not there.
    """
    token = directory / f".node-{socket.gethostname()}-{os.getpid()}.tmp"
    with ranks.propagate_errors():
        if ranks.is_main() and directory.is_dir():
            token.touch()
        name = ranks.broadcast_from_main(token.name)
    until = time.monotonic() + SEEN_WITHIN
    while not (sees := (directory / name).exists()) and time.monotonic() < until:
        time.sleep(0.1)
    blind = [host for host in ranks.gather(None if sees else socket.gethostname()) if host]
    token.unlink(missing_ok=True)
    if blind:
        raise UserError(
            f"{directory} is not shared by the nodes: {blind[0]} does not see there what the "
            "others write; name a directory on a file system that all of them mount"
        )
