"""Loads, stores, atomics, and what the lanes of a warp exchange."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ptx import numbers
from tests.ptx.memory import LOCAL_WINDOW, SHARED_WINDOW, WINDOW, Space, places_in
from tests.ptx.opcodes import DTYPES, UNSIGNED, Array, Frame, Getter, Step, getter, setter
from tests.ptx.parse import SIZES, Address, Instruction, Kernel, Register, Symbol, Vector

SPACES = {"global", "shared", "local", "const"}
IGNORED = {"nc", "volatile", "relaxed", "weak", "gpu", "cta", "cs", "L1", "L2"}


def address(kernel: Kernel, at: Instruction, operand: Any) -> Getter:
    """Read [base + offset] as signed 64-bit numbers."""
    assert isinstance(operand, Address)
    offset = np.int64(operand.offset)
    if operand.base is None:
        return lambda frame: np.full(frame.count, offset)
    wide = not isinstance(operand.base, Register) or SIZES[operand.base.type] == 8
    get = getter(kernel, at, operand.base, "u64" if wide else "u32")
    return lambda frame: np.broadcast_to(get(frame).astype(np.int64) + offset, frame.count)


def _space(at: Instruction) -> str:
    return next((part.split("::")[0] for part in at.parts if part.split("::")[0] in SPACES), "")


def _shape(kernel: Kernel, at: Instruction) -> tuple[str, int]:
    """Type and number of the elements; an unknown modifier is an error."""
    *middle, kind = at.parts[1:]
    count = 1
    for part in middle:
        name = part.split("::")[0]
        if name in ("v2", "v4", "v8"):
            count = int(name[1:])
        elif name not in SPACES | IGNORED:
            raise kernel.error("opcode", at, f"{at.opcode}: {part} is not known here")
    if kind not in DTYPES:
        raise kernel.error("opcode", at, f"{at.opcode}: {kind} is not known here")
    return kind, count


def touched(at: Instruction) -> tuple[str, int] | None:
    """The space and the bytes of one element of an access to memory; None for other opcodes."""
    if at.parts[0] in ("ld", "st", "atom", "red") and ".param" not in at.opcode:
        return _space(at), SIZES.get(at.parts[-1], 1)
    return ("shared", 2) if at.parts[0] in ("ldmatrix", "stmatrix") else None


class Access:
    """Split an instruction's generic addresses by space, check them, then call `body`."""

    def __init__(self, kernel: Kernel, at: Instruction, what: str, width: int) -> None:
        self.kernel, self.at, self.what, self.width = kernel, at, what, width
        self.space = _space(at)

    def places(
        self, frame: Frame, addresses: Array, values: list[Array] | None = None
    ) -> tuple[Space, Array]:
        """The space and the offsets in its bytes, where `values` are to be written."""
        name, machine, within = self.space, frame.machine, addresses
        if name == "":
            windows = np.where(addresses < SHARED_WINDOW, 0, addresses // WINDOW)
            window = windows[0]
            name = {SHARED_WINDOW // WINDOW: "shared", LOCAL_WINDOW // WINDOW: "local"}.get(
                int(window), "global"
            )
            others = windows != window if name != "global" else (windows == 1) | (windows == 2)
            if others.any():
                raise self.error("lanes", "generic addresses of two spaces in one instruction")
            if name != "global":
                within = addresses - window * WINDOW
        if (addresses % self.width).any():
            lane = int(np.flatnonzero(addresses % self.width)[0])
            text = f"address {addresses[lane]:#x} of {self.width} bytes by {frame.name(lane)}"
            raise self.error("alignment", text)
        if name in ("global", "const"):
            space, offsets = machine.memory.space, addresses - machine.memory.base
            fine = places_in(space, offsets, self.width)
        else:
            space = machine.shared if name == "shared" else machine.local
            row = frame.lanes // machine.threads if name == "shared" else frame.lanes
            fine = (within >= 0) & (within <= space.stride - self.width)
            offsets = row * space.stride + within
            fine &= places_in(space, np.where(fine, offsets, 0), self.width)
        if not fine.all():
            lane = int(np.flatnonzero(~fine)[0])
            text = f"{self.what} of {self.width} bytes at {within[lane]:#x} by {frame.name(lane)}"
            raise self.error("bounds", f"{text} is outside of {name} memory that is allocated")
        if space.shadow is not None:
            threads = frame.lanes + machine.order.first
            change = None
            if values is not None:
                change = space.data, lambda: np.stack(values, 1).view(np.uint8)
            wrong = space.shadow.check(
                self.what, offsets, self.width, threads, machine.order, change
            )
            if wrong:
                raise self.error(wrong[0], f"{name} memory: {wrong[1]}")
        return space, offsets

    def error(self, kind: str, text: str) -> Exception:
        """Name the instruction."""
        return self.kernel.error(kind, self.at, text)


def load(kernel: Kernel, at: Instruction) -> Step:
    """ld of one element or a vector, from any space but param."""
    kind, count = _shape(kernel, at)
    where = address(kernel, at, at.operands[1])
    to = at.operands[0]
    items = to.items if isinstance(to, Vector) else (to,)
    if len(items) != count:
        raise kernel.error("parse", at, f"{len(items)} registers for {count} elements")
    puts = [setter(kernel, at, item, kind) for item in items]
    size, dtype = SIZES[kind], DTYPES[kind]
    access = Access(kernel, at, "read", size * count)

    def step(frame: Frame) -> None:
        space, offsets = access.places(frame, where(frame))
        first = offsets // size
        for place, put in enumerate(puts):
            put(frame, space.views[size][first + place].view(dtype))

    return step


def store(kernel: Kernel, at: Instruction) -> Step:
    """st of one element or a vector, to any space but param."""
    kind, count = _shape(kernel, at)
    where = address(kernel, at, at.operands[0])
    what = at.operands[1]
    items = what.items if isinstance(what, Vector) else (what,)
    if len(items) != count:
        raise kernel.error("parse", at, f"{len(items)} values for {count} elements")
    plain = f"b{8 * SIZES[kind]}"
    gets = [getter(kernel, at, item, plain if kind == "bf16" else kind) for item in items]
    size = SIZES[kind]
    access = Access(kernel, at, "write", size * count)

    def step(frame: Frame) -> None:
        values = [np.broadcast_to(get(frame), frame.count).view(UNSIGNED[size]) for get in gets]
        space, offsets = access.places(frame, where(frame), values)
        first = offsets // size
        for place, value in enumerate(values):
            space.views[size][first + place] = value

    return step


def load_parameter(kernel: Kernel, at: Instruction) -> Step:
    """ld.param: the same bytes for every lane."""
    kind, count = at.parts[-1], 1
    vector = at.parts[2] if len(at.parts) == 4 else ""
    if vector:
        count = int(vector[1:])
    to, source = at.operands
    assert isinstance(source, Address)
    items = to.items if isinstance(to, Vector) else (to,)
    puts = [setter(kernel, at, item, kind) for item in items]
    size, dtype = SIZES[kind], DTYPES[kind]
    if not isinstance(source.base, Symbol) or source.base.name not in kernel.parameters:
        raise kernel.error("opcode", at, "a parameter that is addressed by a register")
    variable = kernel.parameters[source.base.name]
    if source.offset + size * count > variable.size or source.offset % (size * count):
        raise kernel.error("bounds", at, f"{source.base.name} has {variable.size} bytes")
    start = variable.offset + source.offset

    def step(frame: Frame) -> None:
        for place, put in enumerate(puts):
            begin = start + place * size
            value = np.frombuffer(frame.machine.parameters[begin : begin + size], dtype)[0]
            put(frame, np.asarray(value))

    return step


CHANGES = {
    "add": lambda old, new: old + new,
    "min": min,
    "max": max,
    "exch": lambda old, new: new,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
}


def atomic(kernel: Kernel, at: Instruction) -> Step:
    """atom and red: lane after lane, in their order."""
    base, *middle, name, kind = at.parts
    if name not in (*CHANGES, "cas") or not set(middle) <= SPACES | IGNORED:
        raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here")
    if kind not in DTYPES:
        raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here")
    operands = at.operands if base == "atom" else (None, *at.operands)
    put = setter(kernel, at, operands[0], kind)
    where = address(kernel, at, operands[1])
    gets = [getter(kernel, at, operand, kind) for operand in operands[2:]]
    size, dtype = SIZES[kind], DTYPES[kind]
    access = Access(kernel, at, "atomic", size)

    def step(frame: Frame) -> None:
        space, offsets = access.places(frame, where(frame))
        cells = space.views[size].view(dtype)
        values = [np.broadcast_to(get(frame), frame.count) for get in gets]
        before = np.empty(frame.count, dtype)
        for lane, cell in enumerate(offsets // size):
            old = before[lane] = cells[cell]
            if name == "cas":
                cells[cell] = values[1][lane] if old == values[0][lane] else old
            else:
                cells[cell] = CHANGES[name](old, values[0][lane])
        put(frame, before)

    return step


class Warps:
    """The values of all lanes of the warps that execute; a lane that is named must be there."""

    def __init__(self, kernel: Kernel, at: Instruction, mask: Any) -> None:
        self.kernel, self.at = kernel, at
        self.mask = getter(kernel, at, mask, "u32")

    def here(self, frame: Frame) -> Array:
        """True for each lane of the chunk that executes, once the masks are checked."""
        machine = frame.machine
        here = np.zeros(machine.lanes, bool)
        here[frame.lanes] = True
        warps = here.reshape(-1, 32)
        mask = np.zeros(machine.lanes, np.uint32)
        mask[frame.lanes] = self.mask(frame)
        masks = mask.reshape(-1, 32)
        named = ((masks.max(1)[:, None] >> np.arange(32, dtype=np.uint32)) & 1).astype(bool)
        alive = ~machine.done.reshape(-1, 32)
        if ((named & alive) != warps).any() or ((masks != masks.max(1)[:, None]) & warps).any():
            raise self.kernel.error("lanes", self.at, "the mask names other lanes than those here")
        return here

    def spread(self, frame: Frame, value: Array) -> Array:
        """The values by lane of the chunk, [lanes]."""
        all_lanes = np.zeros(frame.machine.lanes, np.asarray(value).dtype)
        all_lanes[frame.lanes] = value
        return all_lanes


def shuffle(kernel: Kernel, at: Instruction) -> Step:
    """shfl.sync.{up,down,bfly,idx}.b32."""
    _, sync, mode, kind = at.parts
    if (sync, kind) != ("sync", "b32") or mode not in ("up", "down", "bfly", "idx"):
        raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here")
    *to, source, by, limit, mask = at.operands
    put = setter(kernel, at, to[0], kind)
    put_inside = setter(kernel, at, to[1] if len(to) > 1 else None, "pred")
    value, by, limit = (getter(kernel, at, operand, "b32") for operand in (source, by, limit))
    warps = Warps(kernel, at, mask)

    def step(frame: Frame) -> None:
        here = warps.here(frame)
        lane = (frame.lanes % 32).astype(np.int64)
        b = np.asarray(by(frame)).astype(np.int64) & 31
        c = np.asarray(limit(frame)).astype(np.int64)
        clamp, segment = c & 31, (c >> 8) & 31
        top = (lane & segment) | (clamp & ~segment)
        target = {"up": lane - b, "down": lane + b, "bfly": lane ^ b,
                  "idx": (lane & segment) | (b & ~segment)}[mode]  # fmt: skip
        inside = target >= top if mode == "up" else target <= top
        target = frame.lanes - lane + np.where(inside, target, lane)
        if not here[target].all():
            raise kernel.error("lanes", at, "shuffles from a lane that is not here")
        put(frame, warps.spread(frame, value(frame))[target])
        put_inside(frame, inside)

    return step


def reduce_or_vote(kernel: Kernel, at: Instruction) -> Step:
    """redux.sync.{add,min,max,and,or,xor} and vote.sync.{all,any,ballot}."""
    base, sync, name, kind = at.parts
    vote = base == "vote"
    reductions = {
        **{"add": np.add, "min": np.minimum, "max": np.maximum},
        **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor},
    }
    if kind == "f32":
        reductions = {"min": numbers.smaller, "max": numbers.larger}
    known = ("all", "any", "ballot") if vote else reductions
    if sync != "sync" or name not in known or kind not in ("pred", "b32", "s32", "u32", "f32"):
        raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here")
    to, source, mask = at.operands
    put = setter(kernel, at, to, kind)
    value = getter(kernel, at, source, "pred" if vote else kind)
    warps = Warps(kernel, at, mask)

    def step(frame: Frame) -> None:
        here = warps.here(frame).reshape(-1, 32)
        full = warps.spread(frame, value(frame)).reshape(-1, 32)
        if vote:
            yes = full & here
            result = {"all": (yes == here).all(1), "any": yes.any(1),
                      "ballot": (yes << np.arange(32, dtype=np.uint64)).sum(1)}[name]  # fmt: skip
        else:
            # The lanes that are not here stand in with a value of one that is.
            first = full[np.arange(len(full)), here.argmax(1)][:, None]
            if name in ("add", "xor"):
                first = np.zeros_like(first)
            full = np.where(here, full, first)
            result = full[:, 0]
            for lane in range(1, 32):
                result = reductions[name](result, full[:, lane])
        put(frame, result.astype(DTYPES[kind])[frame.lanes // 32])

    return step


def load_matrix(kernel: Kernel, at: Instruction) -> Step:
    """ldmatrix.sync.aligned.m8n8.x{1,2,4}.shared.b16: lane i gets two of row i / 4."""
    if at.parts[1:4] != ["sync", "aligned", "m8n8"] or at.parts[5:] != ["shared", "b16"]:
        raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here")
    to, source = at.operands
    items = to.items if isinstance(to, Vector) else (to,)
    puts = [setter(kernel, at, item, "b32") for item in items]
    where = address(kernel, at, source)
    access = Access(kernel, at, "read", 16)

    def step(frame: Frame) -> None:
        if frame.count % 32 or (frame.lanes.reshape(-1, 32)[:, 0] % 32).any():
            raise kernel.error("lanes", at, "a warp is not complete")
        lane = np.arange(32)
        addresses = where(frame).reshape(-1, 32)
        rows = frame.subset(np.flatnonzero(frame.lanes % 32 < 8 * len(puts)))
        chosen = addresses[:, : 8 * len(puts)].reshape(-1)
        space, offsets = access.places(rows, chosen)
        offsets = offsets.reshape(-1, len(puts), 8)
        for matrix, put in enumerate(puts):
            begin = offsets[:, matrix, lane // 4] // 4 + lane % 4
            put(frame, space.views[4][begin.reshape(-1)])

    return step


def store_matrix(kernel: Kernel, at: Instruction) -> Step:
    """stmatrix.sync.aligned.m8n8.x{1,2,4}.shared.b16: the reverse of ldmatrix."""
    if at.parts[1:4] != ["sync", "aligned", "m8n8"] or at.parts[5:] != ["shared", "b16"]:
        raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here")
    to, source = at.operands
    items = source.items if isinstance(source, Vector) else (source,)
    gets = [getter(kernel, at, item, "b32") for item in items]
    where = address(kernel, at, to)
    access = Access(kernel, at, "write", 16)

    def step(frame: Frame) -> None:
        if frame.count % 32 or (frame.lanes.reshape(-1, 32)[:, 0] % 32).any():
            raise kernel.error("lanes", at, "a warp is not complete")
        rows = frame.subset(np.flatnonzero(frame.lanes % 32 < 8 * len(gets)))
        chosen = where(frame).reshape(-1, 32)[:, : 8 * len(gets)].reshape(-1)
        words = np.stack([get(frame).reshape(-1, 8, 4) for get in gets], 1).reshape(-1, 4)
        values = [words[:, place].copy() for place in range(4)]
        space, offsets = access.places(rows, chosen, values)
        for place, value in enumerate(values):
            space.views[4][offsets // 4 + place] = value

    return step
