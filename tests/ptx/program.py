"""Make a program of a kernel: basic blocks of steps, each a function on the lanes that execute."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.ptx import accesses, opcodes
from tests.ptx.memory import LOCAL_WINDOW, SHARED_WINDOW
from tests.ptx.opcodes import Array, Frame, Step
from tests.ptx.parse import Address, Instruction, Kernel, Register, Symbol, Vector

FINISHED = -1  # the number of the block after the last
ENDS = ("bra", "ret", "exit", "bar", "barrier")


@dataclass
class Block:
    """A basic block: its steps, the registers that it writes, how it ends."""

    steps: list[Step] = field(default_factory=list)
    writes: set[int] = field(default_factory=set)
    end: Callable[[Frame], int | Array] | None = None
    barrier: tuple[Instruction, Callable[[Frame], Array]] | None = None


def grains(kernel: Kernel) -> dict[str, int]:
    """Bytes that a shadow tells apart, by space: the smallest element that is accessed there."""
    smallest = {"global": 8, "shared": 8}
    for at in kernel.instructions:
        if touched := accesses.touched(at):
            for space in smallest if touched[0] == "" else set(smallest) & {touched[0]}:
                smallest[space] = min(smallest[space], touched[1])
    return smallest


def program(kernel: Kernel) -> list[Block]:
    """The basic blocks of a kernel; made once."""
    if kernel.program is None:
        kernel.program = _blocks(kernel)
    return kernel.program


def _blocks(kernel: Kernel) -> list[Block]:
    instructions = kernel.instructions
    begins = {0, *kernel.labels.values()}
    begins |= {k + 1 for k, at in enumerate(instructions) if _ends(at)}
    starts = sorted(begins | {len(instructions)})
    number = {start: k for k, start in enumerate(starts)}
    blocks = []
    for start, stop in itertools.pairwise(starts):
        block = Block()
        for at in instructions[start:stop]:
            if _ends(at):
                _finish(kernel, at, block, number)
                continue
            step = _step(kernel, at)
            block.steps.append(_guarded(at, step) if at.guard else step)
            block.writes |= _writes(at)
        blocks.append(block)
    return [*blocks, Block(end=lambda frame: FINISHED)]


def _ends(at: Instruction) -> bool:
    return at.parts[0] in ENDS and at.parts[:2] != ["bar", "warp"]


def _finish(kernel: Kernel, at: Instruction, block: Block, number: dict[int, int]) -> None:
    base = at.parts[0]
    following = number[kernel.instructions.index(at) + 1]
    if base in ("bar", "barrier"):
        plain = at.opcode in ("bar.sync", "barrier.sync", "barrier.sync.aligned")
        if not plain or at.guard or len(at.operands) != 1:
            raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here like this")
        block.barrier = at, opcodes.getter(kernel, at, at.operands[0], "u32")
        return
    target = FINISHED
    if base == "bra":
        label = at.operands[0]
        assert isinstance(label, Symbol)
        target = number[kernel.labels[label.name]]
    if at.guard is None:
        block.end = lambda frame: target
        return
    register, negated = at.guard

    def end(frame: Frame) -> int | Array:
        taken = frame.values[register.index] ^ negated
        if taken.all():
            return target
        return np.where(taken, target, following) if taken.any() else following

    block.end = end


def _writes(at: Instruction) -> set[int]:
    """The registers that an instruction may write: those of its first two operands."""
    if at.parts[0] in ("st", "red", "call"):
        return set()
    several = 2 if at.parts[0] == "shfl" else 1
    written = set()
    for operand in at.operands[:several]:
        items = operand.items if isinstance(operand, Vector) else (operand,)
        written |= {item.index for item in items if isinstance(item, Register)}
    return written


def _guarded(at: Instruction, step: Step) -> Step:
    assert at.guard
    (register, negated), writes = at.guard, _writes(at)

    def guarded(frame: Frame) -> None:
        taken = frame.values[register.index] ^ negated
        if taken.all():
            step(frame)
        elif taken.any():
            positions = np.flatnonzero(taken)
            part = frame.subset(positions)
            step(part)
            for index in writes:
                value = frame.values[index].copy()
                value[positions] = part.values[index]
                frame.values[index] = value

    return guarded


def _step(kernel: Kernel, at: Instruction) -> Step:
    base = at.parts[0]
    if base == "mov":
        return opcodes.move(kernel, at)
    if base == "cvta":
        return _generic(kernel, at)
    if at.opcode.startswith("ld.param"):
        return accesses.load_parameter(kernel, at)
    if at.opcode.startswith("st.param"):
        return _argument(kernel, at)
    if at.parts[:3] == ["bar", "warp", "sync"]:
        return _warp_barrier(kernel, at)
    if base == "createpolicy":
        put = opcodes.setter(kernel, at, at.operands[0], "b64")
        return lambda frame: put(frame, np.uint64(0))
    if base == "call":
        return _call(kernel, at)
    makers = {
        **{"ld": accesses.load, "st": accesses.store, "shfl": accesses.shuffle},
        **{"atom": accesses.atomic, "red": accesses.atomic, "ldmatrix": accesses.load_matrix},
        **{"redux": accesses.reduce_or_vote, "vote": accesses.reduce_or_vote},
    }
    return makers.get(base, opcodes.arithmetic)(kernel, at)


def _generic(kernel: Kernel, at: Instruction) -> Step:
    """cvta: to or from a generic address."""
    space = next(part for part in at.parts if part in accesses.SPACES)
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    window = np.uint64(window)
    get = opcodes.getter(kernel, at, at.operands[1], "u64")
    put = opcodes.setter(kernel, at, at.operands[0], "u64")
    if "to" in at.parts:
        return lambda frame: put(frame, get(frame) - window)
    return lambda frame: put(frame, get(frame) + window)


def _warp_barrier(kernel: Kernel, at: Instruction) -> Step:
    warps = accesses.Warps(kernel, at, at.operands[0])

    def step(frame: Frame) -> None:
        warps.here(frame)
        frame.machine.order.time += 1
        frame.machine.order.warp_barrier[frame.lanes] = frame.machine.order.time

    return step


def _argument(kernel: Kernel, at: Instruction) -> Step:
    to, what = at.operands
    assert isinstance(to, Address) and isinstance(to.base, Symbol)
    name, get = to.base.name, opcodes.getter(kernel, at, what, at.parts[-1])

    def step(frame: Frame) -> None:
        frame.machine.arguments[name] = np.broadcast_to(get(frame), frame.count)

    return step


def _call(kernel: Kernel, at: Instruction) -> Step:
    """The one function that kernels call: __assertfail."""
    names = [operand.name for operand in at.operands if isinstance(operand, Symbol)]
    if names[:1] != ["__assertfail"]:
        raise kernel.error("opcode", at, f"a call of {', '.join(names)} is not known here")

    def step(frame: Frame) -> None:
        memory = frame.machine.memory
        begin = int(frame.machine.arguments["param0"][0]) - memory.base
        text = memory.space.data[begin : begin + 1000].tobytes().split(b"\0")[0].decode()
        raise kernel.error("assertion", at, f"{frame.name(0)}: {text}")

    return step
