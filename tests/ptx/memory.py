"""Memory of a grid: bounds by allocation, alignment, and shadows that see races.

Two accesses to one place race when at least one writes, they come from different threads, and no
barrier orders them: bar.sync orders the threads of a block, bar.warp.sync those of a warp, nothing
those of two blocks. Atomics do not race with each other, nor do two writes of one value. A race,
like reading from shared memory what nobody wrote, is an error whatever it does to the results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from tests.ptx.parse import Variable

Array = Any
# Where the generic addresses of shared and local memory begin; no host address lies there.
SHARED_WINDOW, LOCAL_WINDOW, WINDOW = 1 << 40, 1 << 41, 1 << 40
# Between two allocations: an address that is wrong by less meets no other tensor.
GAP = 1 << 16


class Trace:
    """The two threads that last touched each place, and when; threads count from 1."""

    def __init__(self, places: int) -> None:
        self.last = np.zeros(places, np.int32)
        self.other = np.zeros(places, np.int32)
        self.last_time = np.zeros(places, np.int32)
        self.other_time = np.zeros(places, np.int32)

    def record(self, places: Array, threads: Array, time: int) -> None:
        """Note that `threads` touch `places` now."""
        before = self.last[places]
        moved = (before != threads) & (before != 0)
        if moved.any():
            self.other[places[moved]] = before[moved]
            self.other_time[places[moved]] = self.last_time[places[moved]]
        self.last[places] = threads
        self.last_time[places] = time
        beaten = self.last[places] != threads
        if beaten.any():  # several threads touch one place in this instruction
            self.other[places[beaten]] = threads[beaten]
            self.other_time[places[beaten]] = time

    def rival(self, places: Array, threads: Array, order: Order) -> tuple[int, int] | None:
        """Find a thread that touched one of the places without an order to `threads`.

        Returns the position among `places`, and the thread.
        """
        for who, when in ((self.last, self.last_time), (self.other, self.other_time)):
            thread = who[places]
            foreign = (thread != 0) & (thread != threads)
            if foreign.any():
                at = np.flatnonzero(foreign)
                free = at[~order.before(thread[at], when[places[at]], threads[at])]
                if len(free):
                    return int(free[0]), int(thread[free[0]])
        return None


@dataclass
class Order:
    """Hold the time of the last barrier of each block and warp, by lane of a chunk."""

    threads: int  # of a block, whole warps
    first: int  # thread number of the chunk's first lane, from 1
    block_barrier: Array
    warp_barrier: Array
    time: int = 0

    def before(self, earlier: Array, when: Array, now: Array) -> Array:
        """True where what `earlier` did at `when` is ordered before what `now` does."""
        lane = now - self.first
        same_block = (earlier - 1) // self.threads == (now - 1) // self.threads
        same_warp = (earlier - 1) // 32 == (now - 1) // 32
        by_block = same_block & (when < self.block_barrier[lane])
        return by_block | (same_warp & (when < self.warp_barrier[lane]))


class Shadow:
    """Who wrote, read and atomically changed each place of `grain` bytes."""

    def __init__(self, size: int, grain: int, must_be_written: bool) -> None:
        self.grain, self.must_be_written = grain, must_be_written
        places = -(-size // grain)
        self.writes, self.reads, self.atomics = Trace(places), Trace(places), Trace(places)
        self.has_atomics = False

    def check(
        self,
        access: str,
        offsets: Array,
        width: int,
        threads: Array,
        order: Order,
        change: tuple[Array, Callable[[], Array]] | None = None,
    ) -> tuple[str, str] | None:
        """Record an access (read, write, atomic) and return the kind and text of its error.

        `change` of a write: the bytes of the memory, and a function for the bytes that each thread
        writes, [threads, width].
        """
        count = max(1, width // self.grain)
        places = (offsets[:, None] // self.grain + np.arange(count)).reshape(-1)
        threads = np.repeat(threads, count)
        against = [("write", self.writes)]
        if access != "read":
            against.append(("read", self.reads))
        if access != "atomic" and self.has_atomics:
            against.append(("atomic", self.atomics))
        for name, trace in against:
            rival = trace.rival(places, threads, order)
            if rival and name == access == "write" and change:
                held = change[0][places[:, None] * self.grain + np.arange(self.grain)]
                other = (held != change[1]().reshape(held.shape)).any(1)
                places_of, threads_of = places[other], threads[other]
                rival = trace.rival(places_of, threads_of, order) if other.any() else None
                rival = rival and (int(np.flatnonzero(other)[rival[0]]), rival[1])
            if rival:
                at, thread = rival
                return "race", (
                    f"{access} of byte {places[at] * self.grain} by "
                    f"{_thread(int(threads[at]), order)} after {name} by "
                    f"{_thread(thread, order)}, no barrier between"
                )
        if access == "read" and self.must_be_written:
            unwritten = (self.writes.last[places] == 0) & (self.atomics.last[places] == 0)
            if unwritten.any():
                at = int(np.flatnonzero(unwritten)[0])
                return "uninitialised", (
                    f"{_thread(int(threads[at]), order)} reads byte {places[at] * self.grain}, "
                    "which nobody wrote"
                )
        trace = {"read": self.reads, "write": self.writes, "atomic": self.atomics}[access]
        trace.record(places, threads, order.time)
        self.has_atomics |= access == "atomic"
        beaten = np.flatnonzero(trace.last[places] != threads)
        if access == "write" and len(beaten):
            last = {place: at for at, place in enumerate(places.tolist())}
            content = change[1]().reshape(len(places), -1) if change else None
            for at in beaten.tolist():
                winner = last[int(places[at])]
                if content is None or (content[at] != content[winner]).any():
                    return "race", (
                        f"{_thread(int(threads[at]), order)} and "
                        f"{_thread(int(threads[winner]), order)} write byte "
                        f"{places[at] * self.grain} at once"
                    )
        return None


def _thread(number: int, order: Order) -> str:
    return f"thread {(number - 1) % order.threads} of block {(number - 1) // order.threads}"


@dataclass
class Space:
    """Bytes with their views by element size; `owners` is 0 where nothing is allocated."""

    name: str
    data: Array
    owners: Array
    stride: int = 0  # bytes of one block or lane, where each has its own
    shadow: Shadow | None = None
    views: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.views = {size: self.data.view(f"u{size}") for size in (1, 2, 4, 8)}


class Memory:
    """Global memory: copies of tensors far from each other, and the constants of kernels."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        spans = list(_spans(tensors))
        places, end = [], GAP  # the gap before the tensors holds the constants
        for start, stop, _ in spans:
            places.append(end)
            end += -(-(stop - start) // 256) * 256 + GAP
        raw = np.zeros(end + 256, np.uint8)
        shift = -raw.ctypes.data % 256
        self.space = Space("global", raw[shift : shift + end], np.zeros(end, np.uint16))
        self.base = self.space.data.ctypes.data
        self.spans: list[tuple[int, int, int, Tensor]] = []
        for owner, ((start, stop, tensor), place) in enumerate(zip(spans, places, strict=False), 1):
            place += start % 256
            self._own(place, stop - start, owner)
            self.space.data[place : place + stop - start] = _bytes(start, stop - start)
            self.spans.append((start, stop, place, tensor))
        self.constants: dict[str, int] = {}
        self._free = 256

    def constant(self, name: str, variable: Variable) -> int:
        """The address of a variable of the module, which is placed when it is first asked for."""
        if name not in self.constants:
            self.constants[name] = self.base + self._free
            data = variable.data.ljust(variable.size, b"\0")
            assert self._free + len(data) < GAP // 2, "the constants have no place"
            self._own(self._free, len(data), 65535)
            self.space.data[self._free : self._free + len(data)] = np.frombuffer(data, np.uint8)
            self._free += -(-len(data) // 256) * 256 + 256
        return self.constants[name]

    def _own(self, place: int, size: int, owner: int) -> None:
        self.space.owners[place : place + size] = owner

    def address(self, tensor: Tensor) -> int:
        """Find the copy of `tensor`; an empty one lies outside of every allocation."""
        at = tensor.data_ptr()
        for start, stop, place, _ in self.spans:
            if tensor.numel() and start <= at < stop:
                return self.base + place + at - start
        return self.base + at % 256 if at else 0

    def copy_back(self) -> None:
        """Write what the kernel left into the tensors."""
        for start, stop, place, _ in self.spans:
            _bytes(start, stop - start)[:] = self.space.data[place : place + stop - start]


def _bytes(start: int, size: int) -> Array:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(start), np.uint8)


def _spans(tensors: Sequence[Tensor]) -> Iterator[tuple[int, int, Tensor]]:
    """The bytes that tensors reach, [start, stop), joined where they overlap."""
    reached = sorted(
        (
            (start := tensor.data_ptr()),
            start + tensor.element_size() * (1 + sum(
                (size - 1) * stride
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )),
            number,
        )
        for number, tensor in enumerate(tensors)
        if tensor.numel()
    )  # fmt: skip
    joined: list[tuple[int, int, Tensor]] = []
    for start, stop, number in reached:
        if joined and start < joined[-1][1]:
            first, end, tensor = joined[-1]
            joined[-1] = (first, max(end, stop), tensor)
        else:
            joined.append((start, stop, tensors[number]))
    yield from joined


def places_in(space: Space, offsets: Array, width: int) -> Array:
    """True where `width` bytes from an offset lie in one allocation."""
    inside = (offsets >= 0) & (offsets <= len(space.data) - width)
    held = np.where(inside, offsets, 0)
    owner = space.owners[held]
    last = np.minimum(held + width, len(space.data)) - 1
    return inside & (owner != 0) & (owner == space.owners[last])
