"""Run a kernel: lanes to basic blocks by the least program counter, barriers, blocks of the grid.

A chunk of the grid's blocks runs at once. Of the lanes that can run, those at the foremost basic
block execute it together, so lanes that diverged meet again where their paths do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.ptx import opcodes
from tests.ptx.memory import Memory, Order, Shadow, Space
from tests.ptx.opcodes import Array
from tests.ptx.parse import Instruction, Kernel, Variable
from tests.ptx.program import grains, program

# Lanes that run at once, and basic blocks that a chunk executes before it is called endless.
LANES, BLOCKS = 2048, 2_000_000
DONE = 1 << 30
# What a register holds that nothing wrote: NaN as a float of any size.
UNWRITTEN = {1: 0xFF, 2: 0xFFA5, 4: 0xFFF7A5A5, 8: 0xFFF7A5A5FFF7A5A5}


class _Values(dict[int, Array]):
    """Registers of the lanes of a frame, gathered when they are first read."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def __missing__(self, index: int) -> Array:
        frame = self.frame
        full = frame.machine.register(index)
        self[index] = full if frame.all_lanes else full[frame.lanes]
        return self[index]


class Frame:
    """The lanes that execute, and their registers; `written` is what must be put back."""

    def __init__(self, machine: Machine, lanes: Array, parent: Frame | None = None) -> None:
        self.machine, self.lanes = machine, lanes
        self.count = len(lanes)
        self.all_lanes = parent is None and self.count == machine.lanes
        self.values: Any = _Values(self) if parent is None else {}
        self.written: set[int] = set()

    def subset(self, positions: Array) -> Frame:
        """Some of the lanes, with the registers so far."""
        return _Part(self, positions)

    def special(self, name: str, at: Instruction) -> Array:
        """A special register of the lanes."""
        machine = self.machine
        base, _, axis = name.partition(".")
        thread, block = self.lanes % machine.threads, self.lanes // machine.threads + machine.first
        if base in ("%tid", "%ctaid"):
            size, number = (machine.block, thread) if base == "%tid" else (machine.grid, block)
            return _along("xyz".index(axis), size, number)
        if base in ("%ntid", "%nctaid"):
            size = machine.block if base == "%ntid" else machine.grid
            return np.full(self.count, size["xyz".index(axis)])
        if name == "%laneid":
            return self.lanes % 32
        if name == "%warpid":
            return thread // 32
        raise machine.kernel.error("opcode", at, f"special register {name} is not known here")

    def name(self, position: int) -> str:
        """The thread of a lane, in words."""
        block, thread = divmod(int(self.lanes[position]), self.machine.threads)
        return f"thread {thread} of block {block + self.machine.first}"


def _along(axis: int, size: Sequence[int], number: Array) -> Array:
    for length in size[:axis]:
        number = number // length
    return number % size[axis]


class _Part(Frame):
    """Lanes of another frame, for an instruction under a predicate."""

    def __init__(self, whole: Frame, positions: Array) -> None:
        super().__init__(whole.machine, whole.lanes[positions], whole)
        values = whole.values

        class Picked(dict[int, Array]):
            def __missing__(self, index: int) -> Array:
                self[index] = values[index][positions]
                return self[index]

        self.values = Picked()


class Machine:
    """A grid of one kernel on `memory`; `parameters` are the bytes of its arguments."""

    def __init__(
        self,
        kernel: Kernel,
        memory: Memory,
        grid: Sequence[int],
        block: Sequence[int],
        parameters: bytes,
        shared_bytes: int = 0,
        races: bool = True,
    ) -> None:
        self.kernel, self.memory, self.parameters = kernel, memory, parameters
        self.grid, self.block = (tuple((*size, 1, 1))[:3] for size in (grid, block))
        self.blocks = program(kernel)
        self.end = len(self.blocks) - 1
        self.size = int(np.prod(self.block))
        self.threads = -(-self.size // 32) * 32
        self.dynamic = shared_bytes
        self.grains = grains(kernel)
        if races:
            memory.space.shadow = Shadow(len(memory.space.data), self.grains["global"], False)
        self.first = self.lanes = 0

    def run(self) -> None:
        """Execute all blocks of the grid."""
        total = int(np.prod(self.grid))
        each = max(1, LANES // self.threads)
        with np.errstate(all="ignore"):
            for first in range(0, total, each):
                self.first = first
                self._run_chunk(min(each, total - first))

    def register(self, index: int) -> Array:
        """A register of all lanes of the chunk."""
        if index not in self.registers:
            dtype = opcodes.bits_of(self.kernel.registers[index])
            unwritten = True if dtype.kind == "b" else UNWRITTEN[dtype.itemsize]
            self.registers[index] = np.full(self.lanes, unwritten, dtype)
        return self.registers[index]

    def address_of(self, name: str, at: Instruction, frame: Frame) -> Array:
        """Address of a variable in its own space; a constant has a generic address."""
        kernel = self.kernel
        for table in (kernel.shared, kernel.local):
            if name in table:
                return np.full(frame.count, table[name].offset, np.int64)
        if name in kernel.constants:
            at_byte = self.memory.constant(name, kernel.constants[name])
            return np.full(frame.count, at_byte, np.int64)
        raise kernel.error("parse", at, f"{name} is not declared")

    def _run_chunk(self, blocks: int) -> None:
        lanes = self.lanes = blocks * self.threads
        self.order: Order
        self.registers: dict[int, Array] = {}
        self.owned: set[int] = set()
        self.arguments: dict[str, Array] = {}
        self.local = _space("local", self.kernel.local, 0, lanes)
        self.shared = _space("shared", self.kernel.shared, self.dynamic, blocks)
        self.shared.shadow = Shadow(len(self.shared.data), self.grains["shared"], True)
        time = self.order.time + 1 if hasattr(self, "order") else 0
        start = np.full(lanes, -1)
        first = self.first * self.threads + 1
        self.order = Order(self.threads, first, start, start.copy(), time)
        self.at = np.zeros(lanes, np.int64)
        self.waiting = np.zeros(lanes, bool)
        self.done = np.arange(lanes) % self.threads >= self.size
        for _ in range(BLOCKS):
            ready = np.flatnonzero(~(self.waiting | self.done))
            if len(ready):
                self._advance(ready)
            elif self.waiting.any():
                self._release()
            else:
                return
        raise self.kernel.error("lanes", self.kernel.instructions[0], "the kernel does not end")

    def _advance(self, ready: Array) -> None:
        """Run the foremost lanes until they part, wait, end, or reach others."""
        places = self.at[ready]
        here = int(places.min())
        behind = places != here
        others = int(places[behind].min()) if behind.any() else DONE
        frame = Frame(self, ready[~behind] if behind.any() else ready)
        if frame.all_lanes:
            self.owned.clear()
        while True:
            block = self.blocks[here]
            for step in block.steps:
                step(frame)
            frame.written |= block.writes
            if block.barrier:
                self._arrive(frame, *block.barrier)
                target = block.end(frame)
                break
            target = block.end(frame)
            if isinstance(target, int) and target < min(others, self.end):
                here = target
                continue
            break
        self._put_back(frame)
        self.at[frame.lanes] = target
        self.done[frame.lanes[np.broadcast_to(target, frame.count) == self.end]] = True

    def _put_back(self, frame: Frame) -> None:
        for index in frame.written:
            if index not in frame.values:
                continue  # written under a predicate that was false
            value = frame.values[index]
            if frame.all_lanes:
                self.registers[index] = value
                continue
            full = self.register(index)
            if index not in self.owned:
                full = self.registers[index] = full.copy()
                self.owned.add(index)
            full[frame.lanes] = value

    def _arrive(self, frame: Frame, at: Instruction, number: Callable[[Frame], Array]) -> None:
        if (np.asarray(number(frame)) != 0).any():
            raise self.kernel.error("barrier", at, "barriers beside 0 are not known here")
        here = np.zeros(self.lanes, bool)
        here[frame.lanes] = True
        warps, done = here.reshape(-1, 32), self.done.reshape(-1, 32)
        parted = warps.any(1) & ~(warps | done).all(1)
        if parted.any():
            warp = int(np.flatnonzero(parted)[0])
            lane = int(np.flatnonzero(warps[warp])[0]) + 32 * warp
            name = frame.name(int(np.flatnonzero(frame.lanes == lane)[0]))
            raise self.kernel.error("barrier", at, f"a part of a warp is here, {name} among it")
        self.waiting[frame.lanes] = True

    def _release(self) -> None:
        """Let go the lanes that wait: nobody of their blocks can run before."""
        self.order.time += 1
        blocks = self.waiting.reshape(-1, self.threads).any(1)
        self.order.block_barrier[np.repeat(blocks, self.threads)] = self.order.time
        self.waiting[:] = False


def _space(name: str, variables: dict[str, Variable], dynamic: int, rows: int) -> Space:
    """Memory of the variables for each block or lane; one without a size has the dynamic bytes."""
    size = max((v.offset + (v.size or dynamic) for v in variables.values()), default=0)
    owners = np.zeros(max(16, -(-size // 16) * 16), np.uint16)
    for owner, variable in enumerate(variables.values(), 1):
        owners[variable.offset : variable.offset + (variable.size or dynamic)] = owner
    data = np.zeros(rows * len(owners), np.uint8)
    return Space(name, data, np.tile(owners, rows), len(owners))
