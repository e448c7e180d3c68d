"""Make a program of a kernel: basic blocks of steps, each a function on the lanes that execute."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ptx import accesses, opcodes
from tests.ptx.memory import LOCAL_WINDOW, SHARED_WINDOW
from tests.ptx.opcodes import Array, Frame, Step
from tests.ptx.parse import Address, Instruction, Kernel, Register, Symbol, Vector

ENDS = ("bra", "ret", "exit", "bar", "barrier")


@dataclass
class Block:
    """A basic block: its steps, the registers that it writes, how it ends."""

    steps: list[Step] = field(default_factory=list)
    writes: set[int] = field(default_factory=set)
    end: Any = None  # a function: the next block of all lanes, or of each
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
    """The basic blocks of a kernel, the first one first; lanes at the last one are done."""
    if kernel.program is None:
        kernel.program = _blocks(kernel)
    return kernel.program


def _blocks(kernel: Kernel) -> list[Block]:
    instructions = kernel.instructions
    begins = {0, *kernel.labels.values()}
    begins |= {k + 1 for k, at in enumerate(instructions) if _ends(at)}
    starts = sorted(begins | {len(instructions)})
    place = {start: k for k, start in enumerate(starts)}
    targets = {place[k]: _targets(kernel, k, place) for k in starts[:-1]}
    for start, stop in itertools.pairwise(starts):
        targets[place[start]] = _targets(kernel, stop - 1, place)
    end = len(starts) - 1
    targets[end] = []
    order = _in_order(_reached(0, targets) | {end}, targets)
    # The end is the last of all: lanes that are there are done.
    order = [k for k in order if k != end] + [end]
    number = {k: rank for rank, k in enumerate(order)}
    blocks = []
    for k in order[:-1]:
        block = Block()
        for at in instructions[starts[k] : starts[k + 1]]:
            if _ends(at):
                _finish(kernel, at, block, [number[t] for t in targets[k]])
                continue
            step = _step(kernel, at)
            block.steps.append(_guarded(at, step) if at.guard else step)
            block.writes |= _writes(at)
        if block.end is None:
            following = number[targets[k][0]]
            block.end = lambda frame, following=following: following
        blocks.append(block)
    return [*blocks, Block()]


def _ends(at: Instruction) -> bool:
    return at.parts[0] in ENDS and at.parts[:2] != ["bar", "warp"]


def _targets(kernel: Kernel, last: int, place: dict[int, int]) -> list[int]:
    """The blocks that may follow a block by its last instruction, the next in the text first."""
    at, end = kernel.instructions[last], len(place) - 1
    following = [] if last + 1 not in place else [place[last + 1]]
    if at.parts[0] in ("ret", "exit"):
        return [*(following if at.guard else []), end]
    if at.parts[0] != "bra":
        return following
    label = at.operands[0]
    assert isinstance(label, Symbol)
    return [*(following if at.guard else []), place[kernel.labels[label.name]]]


def _reached(start: int, targets: dict[int, list[int]]) -> set[int]:
    reached, open_ends = {start}, [start]
    while open_ends:
        for target in targets[open_ends.pop()]:
            if target not in reached:
                reached.add(target)
                open_ends.append(target)
    return reached


def _in_order(nodes: set[int], targets: dict[int, list[int]]) -> list[int]:
    """Blocks so that joins come after their branches, and all of a loop before what follows it.

    The text does not promise that: a compiler puts what is rare at the end. Strongly connected
    components in topological order (Kosaraju), inside of one likewise without its first block.
    """
    inner = {k: [t for t in targets[k] if t in nodes] for k in nodes}
    finished: list[int] = []
    entered: set[int] = set()
    for root in sorted(nodes):
        path = [] if root in entered else [(root, iter(inner[root]))]
        entered.add(root)
        while path:
            node, left = path[-1]
            for target in left:
                if target not in entered:
                    entered.add(target)
                    path.append((target, iter(inner[target])))
                    break
            else:
                finished.append(node)
                path.pop()
    sources: dict[int, list[int]] = {k: [] for k in nodes}
    for node, follow in inner.items():
        for target in follow:
            sources[target].append(node)
    order: list[int] = []
    placed: set[int] = set()
    for root in reversed(finished):
        if root in placed:
            continue
        component = _reached(root, {k: [s for s in sources[k] if s not in placed] for k in nodes})
        placed |= component
        order.append(root)
        if len(component) > 1:
            order += _in_order(component - {root}, inner)
    return order


def _finish(kernel: Kernel, at: Instruction, block: Block, targets: list[int]) -> None:
    base = at.parts[0]
    if base in ("bar", "barrier"):
        plain = at.opcode in ("bar.sync", "barrier.sync", "barrier.sync.aligned")
        if not plain or at.guard or len(at.operands) != 1:
            raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here like this")
        block.barrier = at, opcodes.getter(kernel, at, at.operands[0], "u32")
        return
    target, following = targets[-1], targets[0]
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
        **{"stmatrix": accesses.store_matrix},
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
