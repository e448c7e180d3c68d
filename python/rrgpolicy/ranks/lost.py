"""Say why a rank does not start.

Before ranks have joined they share nothing but torchrun's store. A rank whose recipe is bad (its
node lacks a file) says so there and ends at once; the others would wait for `scale.timeout`
seconds. Of a rank that ends later torchrun's report says which, and how.
"""

from __future__ import annotations

import datetime
import os
import socket
import time
from typing import Any

import torch.distributed as dist

from rrgclinical.common.errors import UserError

_ARRIVED, _REFUSED = "rrgpolicy/arrived", "rrgpolicy/refused"
_QUICKLY = 10.0


class TorchrunGone(UserError):
    """The store is gone that ranks would meet by, and perhaps rank 0 with it."""


def store_of_torchrun(timeout: float = _QUICKLY) -> Any:
    """Connect to torchrun's store; None in processes that it has not started."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    limit = datetime.timedelta(seconds=timeout)
    store = next(dist.rendezvous("env://", timeout=limit))[0]
    # it outlives a restart by torchrun (--max-restarts), with the news and addresses before it
    return dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)


def refuse(line: str) -> None:
    """Tell the ranks that arrive why this one does not."""
    rank = os.environ.get("RANK", "0")
    try:
        store = store_of_torchrun()
        if store is not None and not store.check([_REFUSED]):
            store.set(_REFUSED, f"rank {rank} on {socket.gethostname()}: {line}")
    except dist.DistError:
        return  # torchrun is gone already, and the others with it


def await_all(store: Any, size: int, timeout: float) -> None:
    """Wait until all ranks have arrived.

    Raises UserError with the line of one that refused, or when `timeout` seconds are over.
    """
    until = time.monotonic() + timeout
    arrived = 1
    while (come := _ask(store, arrived)) < size:
        arrived = 0
        if time.monotonic() > until:
            raise UserError(
                f"{come} of {size} processes have started within {timeout:.0f} s (scale.timeout); "
                "look at the other nodes' output, and start --nproc-per-node processes on each"
            )
        time.sleep(0.05)


def _ask(store: Any, arrived: int) -> int:
    """Count those that have come, `arrived` more."""
    try:
        if store.check([_REFUSED]):
            raise UserError(store.get(_REFUSED).decode())
        return int(store.add(_ARRIVED, arrived))
    except dist.DistError as error:
        raise TorchrunGone(
            "torchrun on the first node ended before all processes had started; its output says why"
        ) from error
