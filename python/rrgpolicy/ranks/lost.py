"""Say which ranks do not answer, and why one does not start.

A thread of each rank watches the processes that the same torchrun has started, and reads of one
that ends how it ended, in the moment before torchrun takes it away. Ranks tell each other through
torchrun's store, which outlives them: who has ended, and, once an exchange has failed, who is still
there. A rank that is neither is one that does not answer.

Before ranks have joined they share nothing but that store. A rank whose recipe is bad (its node
lacks a file) says so there and ends at once; the others would wait for `scale.timeout` seconds.
"""

from __future__ import annotations

import datetime
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from rrgclinical.common.errors import UserError
from rrgclinical.common.host import how_it_ended

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


POLL = 2.0
# Ranks that are there say so within this many seconds of each other's first failed exchange.
ROLL_CALL = 5.0

Peer = tuple[str, int, int]
"""Host, process, and the process that started it."""


def own_peer() -> Peer:
    """Describe this process to the others."""
    return socket.gethostname(), os.getpid(), os.getppid()


@dataclass
class Watch:
    """The ranks of a run, watched from one of them.

    peers: of all ranks, in their order. store: torchrun's, None without it.
    """

    rank: int
    peers: Sequence[Peer]
    store: Any = None
    timeout: float = 1800.0
    """Seconds for which the ranks wait for each other."""
    ended: dict[int, str] = field(default_factory=dict)
    _closed: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Watch until `stop`."""
        threading.Thread(target=self._run, name="rrgpolicy-ranks", daemon=True).start()

    def stop(self) -> None:
        """End the watch: from here on ranks may go."""
        self._closed.set()

    def missing(self, reason: str) -> str:
        """Word who does not answer, after an exchange that failed for `reason`; "" if unknown.

        Waits up to `ROLL_CALL` seconds for the others to say that they are there.
        """
        self._say(f"here/{self.rank}", "1")
        others = [r for r in range(len(self.peers)) if r != self.rank]
        silent, until = others, time.monotonic() + ROLL_CALL
        while silent and time.monotonic() < until:
            time.sleep(0.02)
            self._learn()
            silent = [r for r in others if r not in self.ended and not self._hear(f"here/{r}")]
            if self._first() and "Timed out" not in reason:
                break
        if not self._first() and silent and self.store is not None:
            waited = f"does not answer (scale.timeout={self.timeout:.0f})"
            return "; ".join(self._line(r, waited) for r in silent)
        return "; ".join(self._gone())

    def prints_last_line(self) -> bool:
        """Tell whether no rank before this one is there to print the last line.

        Waits up to `ROLL_CALL` seconds for those that have not ended to say that they are.
        """
        before, until = range(self.rank), time.monotonic() + ROLL_CALL
        while not any(self._hear(f"here/{r}") for r in before):
            if (
                all(r in self.ended for r in before)
                or time.monotonic() > until
                or self.store is None
            ):
                return True
            time.sleep(0.02)
            self._learn()
        return False

    def _first(self) -> list[int]:
        """List ranks that ended on their own, not those that left because another ended."""
        return [r for r in sorted(self.ended) if not self._hear(f"here/{r}")]

    def _gone(self) -> list[str]:
        return [self._line(r, self.ended[r]) for r in self._first() or sorted(self.ended)]

    def _line(self, rank: int, state: str) -> str:
        host, process, _ = self.peers[rank]
        return f"rank {rank}, process {process} on {host}, {state}"

    def _run(self) -> None:
        host, _, parent = self.peers[self.rank]
        poll, watched = select.poll(), {}
        for rank, peer in enumerate(self.peers):
            if rank != self.rank and (peer[0], peer[2]) == (host, parent):
                try:
                    handle = os.pidfd_open(peer[1])
                except ProcessLookupError:
                    self._note(rank, "ended")
                    continue
                except OSError:
                    continue  # a kernel without it: an exchange that fails will tell
                watched[handle] = rank
                poll.register(handle, select.POLLIN)
        while not self._closed.is_set():
            for handle, _ in poll.poll(POLL * 1000):
                rank = watched[handle]
                poll.unregister(handle)
                os.close(handle)
                if not self._closed.is_set():
                    self._note(rank, how_it_ended(self.peers[rank][1]))
            self._learn()

    def _note(self, rank: int, state: str) -> None:
        self.ended[rank] = state
        self._say(f"ended/{rank}", state)
        self._say("ended", "1")

    def _learn(self) -> None:
        if not self._hear("ended"):  # one question, however many ranks there are
            return
        for rank in range(len(self.peers)):
            if rank not in self.ended and (state := self._hear(f"ended/{rank}")):
                self.ended[rank] = state

    # The store is gone with the torchrun of the first node; what this node has seen then counts.
    def _say(self, key: str, value: str) -> None:
        if self.store is not None:
            try:
                self.store.set(key, value)
            except dist.DistError:
                self.store = None

    def _hear(self, key: str) -> str:
        if self.store is None:
            return ""
        try:
            return self.store.get(key).decode() if self.store.check([key]) else ""
        except dist.DistError:
            self.store = None
            return ""
