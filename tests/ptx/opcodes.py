"""Compute instructions: from operands of its lanes to a result of its lanes.

`semantics` gives the function of an arithmetic instruction and the types around it; `arithmetic`
makes of it a function of the frame, which holds the registers of the lanes that execute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ptx import fields, numbers
from tests.ptx.parse import (
    SIZES,
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    Symbol,
    Vector,
    number,
)

Array = Any
Frame = Any  # run.Frame: `values` by register, `lanes`, `machine`
Step = Callable[[Frame], None]
Getter = Callable[[Frame], Array]
Function = Callable[..., Array]
DTYPES = {f"{letter}{8 * size}": np.dtype(f"{code}{size}")
          for letter, code in (("b", "u"), ("u", "u"), ("s", "i"), ("f", "f"))
          for size in (1, 2, 4, 8) if (letter, size) != ("f", 1)}  # fmt: skip
DTYPES |= {"pred": np.dtype(bool), "bf16": np.dtype("u2"), "bf16x2": np.dtype("u4")}
DTYPES |= {"f32x2": np.dtype("u8"), "f16x2": np.dtype("u4")}
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
FLOATS, REALS = ("f32", "f64"), ("f16", "f32", "f64")


def bits_of(kind: str) -> np.dtype:
    """The dtype in which a register of `kind` is kept."""
    return DTYPES["pred"] if kind == "pred" else UNSIGNED[SIZES[kind]]


def getter(kernel: Kernel, at: Instruction, operand: Operand | None, kind: str) -> Getter:
    """Read an operand as values of `kind`; bf16 comes as fp32, f32x2 as twice as many fp32."""
    if isinstance(operand, Register):
        index = operand.index
        if kind == "pred":
            return lambda frame: frame.values[index]
        stored, wanted = bits_of(operand.type), UNSIGNED[SIZES[kind]]
        if stored.itemsize < wanted.itemsize:
            raise kernel.error("parse", at, f"a register of {operand.type} read as {kind}")
        if kind == "bf16":
            return lambda frame: numbers.bf16_to_f32(frame.values[index])
        dtype = DTYPES["f32"] if kind == "f32x2" else DTYPES[kind]
        if stored == wanted == dtype:
            return lambda frame: frame.values[index]
        if stored == wanted:
            return lambda frame: frame.values[index].view(dtype)
        return lambda frame: frame.values[index].astype(wanted).view(dtype)
    if isinstance(operand, Immediate):
        if kind == "pred":
            truth = np.bool_(int(operand.text, 0) != 0)
            return lambda frame: truth
        if kind in ("bf16", "f32x2"):
            raise kernel.error("parse", at, f"a literal of {kind}")
        constant = number(operand.text, kind).view(DTYPES[kind])
        return lambda frame: constant
    if isinstance(operand, Symbol):
        name, dtype = operand.name, DTYPES[kind]
        if name.startswith("%"):
            return lambda frame: frame.special(name, at).astype(dtype)
        return lambda frame: frame.machine.address_of(name, at, frame).astype(dtype)
    raise kernel.error("parse", at, f"an operand that is not understood: {operand}")


def setter(
    kernel: Kernel, at: Instruction, operand: Operand | None, kind: str
) -> Callable[[Frame, Array], None]:
    """Write values of `kind` into a register; a wider one is filled by sign or by zeros."""
    if not isinstance(operand, Register):
        if operand is None:
            return lambda frame, value: None
        raise kernel.error("parse", at, f"not a register: {operand}")
    index, stored = operand.index, bits_of(operand.type)
    if kind != "pred" and SIZES[kind] > stored.itemsize:
        raise kernel.error("parse", at, f"{kind} into a register of {operand.type}")
    widened = np.dtype(f"i{stored.itemsize}") if kind[0] == "s" else stored

    def put(frame: Frame, value: Array) -> None:
        if kind != "pred" and value.dtype.itemsize < stored.itemsize and kind != "f32x2":
            unsigned = UNSIGNED[value.dtype.itemsize]
            value = (value if kind[0] == "s" else value.view(unsigned)).astype(widened)
        if not value.ndim:
            value = np.full(frame.count, value)
        frame.values[index] = value if value.dtype == stored else value.view(stored)

    return put


def arithmetic(kernel: Kernel, at: Instruction) -> Step:
    """Make the step of an instruction without memory."""
    found = semantics(at)
    if found is None:
        raise kernel.error("opcode", at, f"opcode {at.opcode} is not known here")
    function, result, kinds = found
    if len(at.operands) != len(kinds) + 1:
        raise kernel.error("opcode", at, f"{at.opcode} with {len(at.operands)} operands")
    put = setter(kernel, at, at.operands[0], result)
    gets = [getter(kernel, at, o, k) for o, k in zip(at.operands[1:], kinds, strict=True)]
    if len(gets) == 1:
        one = gets[0]
        return lambda frame: put(frame, function(one(frame)))
    if len(gets) == 2:
        a, b = gets
        return lambda frame: put(frame, function(a(frame), b(frame)))
    return lambda frame: put(frame, function(*(get(frame) for get in gets)))


def move(kernel: Kernel, at: Instruction) -> Step:
    """mov, also of a vector into its parts and of parts into a vector."""
    kind = at.parts[-1]
    to, what = at.operands
    if isinstance(to, Vector):
        part = f"b{8 * SIZES[kind] // len(to.items)}"
        get = getter(kernel, at, what, kind)
        puts = [setter(kernel, at, item, part) for item in to.items]

        def split(frame: Frame) -> None:
            value = np.broadcast_to(get(frame), frame.count)
            parts = np.ascontiguousarray(value).view(DTYPES[part]).reshape(-1, len(puts))
            for column, put in enumerate(puts):
                put(frame, parts[:, column].copy())

        return split
    put = setter(kernel, at, to, kind)
    if isinstance(what, Vector):
        part = f"b{8 * SIZES[kind] // len(what.items)}"
        gets = [getter(kernel, at, item, part) for item in what.items]

        def join(frame: Frame) -> None:
            columns = [np.broadcast_to(get(frame), frame.count) for get in gets]
            put(frame, np.stack(columns, 1).view(UNSIGNED[SIZES[kind]]).reshape(-1))

        return join
    get = getter(kernel, at, what, kind)
    return lambda frame: put(frame, get(frame))


def semantics(at: Instruction) -> tuple[Function, str, list[str]] | None:
    """The function of an opcode, the type of its result and of its operands; None: not known."""
    base, *modifiers = at.parts
    if base == "setp":
        return _comparison(modifiers, len(at.operands))
    if base == "cvt":
        return _conversion(modifiers)
    kind = modifiers.pop() if modifiers else ""
    if kind not in DTYPES:
        return None
    flush = "ftz" in modifiers
    if base == "rcp" and kind == "f64" and modifiers == ["approx", "ftz"]:
        return numbers.rough_reciprocal, kind, [kind]
    if kind == "f32" and (rough := numbers.known(base, modifiers)):
        function, count = rough
        return _flushing(function) if flush else function, kind, [kind] * count
    if kind in ("bf16", "f16"):
        mixed = base in MIXED and modifiers == ["rn", "f32"]
        return (MIXED[base], "f32", [kind, "f32"]) if mixed else None
    modifiers = [m for m in modifiers if m not in ("rn", "ftz")]
    if kind in FLOATS or kind == "f32x2":
        function = None if modifiers else FLOAT.get(base)
        if function is None:
            return None
        if base == "fma":
            function = numbers.fma64 if kind == "f64" else numbers.fma32
        if base == "selp":
            return function, kind, [kind, kind, "pred"]
        three = base == "fma" or (base in ("min", "max") and len(at.operands) == 4)
        if three and base != "fma":
            two = function
            function = lambda a, b, c: two(two(a, b), c)  # noqa: E731
        if flush:
            function = _flushing(function)
        return function, kind, [kind] * (3 if three else 1 if base in UNARY else 2)
    return _integer(base, modifiers, kind)


def _flushing(function: Function) -> Function:
    return lambda *x: numbers.flushed(function(*map(numbers.flushed, x)))


def _integer(base: str, modifiers: list[str], kind: str) -> tuple[Function, str, list[str]] | None:
    name = ".".join([base, *modifiers])
    if name in ("mul.wide", "mad.wide"):
        wide = f"{kind[0]}{16 * SIZES[kind]}"
        dtype = DTYPES[wide]
        if base == "mul":
            return lambda a, b: _as(a, dtype) * _as(b, dtype), wide, [kind, kind]
        return lambda a, b, c: _as(a, dtype) * _as(b, dtype) + c, wide, [kind, kind, wide]
    if name == "mul.hi":
        if kind == "u64":
            return numbers.high_product, kind, [kind] * 2
        if SIZES[kind] > 4:
            return None
        dtype, bits = np.dtype(f"{DTYPES[kind].kind}8"), 8 * SIZES[kind]
        return (
            lambda a, b: ((_as(a, dtype) * _as(b, dtype)) >> bits).astype(DTYPES[kind]),
            *(kind, [kind] * 2),
        )
    if found := fields.known(base, modifiers, kind):
        return found
    if name in ("shl", "shr"):
        return _shift(base, kind), kind, [kind, "u32"]
    if name == "selp":
        return lambda a, b, p: np.where(p, a, b), kind, [kind, kind, "pred"]
    if name in ("popc", "clz"):
        return COUNTS[name], "u32", [kind]
    function = (LOGIC if kind == "pred" else INTEGER).get(name)
    if function is None or (kind[0] == "b" and name not in LOGIC):
        return None
    arity = 1 if base in UNARY else 3 if base == "mad" else 2
    return function, kind, [kind] * arity


def _as(x: Array, dtype: np.dtype) -> Array:
    return np.asarray(x).astype(dtype)


def _shift(base: str, kind: str) -> Function:
    bits, dtype = 8 * SIZES[kind], DTYPES[kind]
    signed = dtype.kind == "i"

    def shift(a: Array, by: Array) -> Array:
        held = np.minimum(by, bits - 1).astype(dtype)
        result = a << held if base == "shl" else a >> held
        return result if signed and base == "shr" else np.where(by < bits, result, dtype.type(0))

    return shift


def _leading_zeros(a: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    for shift in (1, 2, 4, 8, 16, 32)[: bits.bit_length() - 1]:
        a = a | (a >> a.dtype.type(shift))
    return (bits - np.bitwise_count(a)).astype(np.uint32)


COUNTS = {"popc": lambda a: np.bitwise_count(a).astype(np.uint32), "clz": _leading_zeros}
MIXED = {"add": lambda a, c: a + c, "sub": lambda a, c: a - c}
UNARY = {"neg", "abs", "not", "rcp", "sqrt"}
LOGIC: dict[str, Function] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
}
INTEGER: dict[str, Function] = LOGIC | {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "div": lambda a, b: numbers.divided(*np.broadcast_arrays(a, b))[0],
    "rem": lambda a, b: numbers.divided(*np.broadcast_arrays(a, b))[1],
    "min": np.minimum,
    "max": np.maximum,
    "neg": lambda a: -a,
    "abs": np.abs,
}
FLOAT: dict[str, Function] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": numbers.fma32,
    "min": numbers.smaller,
    "max": numbers.larger,
    "neg": lambda a: -a,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rcp": lambda a: a.dtype.type(1) / a,
    "selp": lambda a, b, p: np.where(p, a, b),
}

COMPARE: dict[str, Function] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNORDERED: dict[str, Function] = {
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": lambda a, b: a != b,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
    "ne": lambda a, b: (a < b) | (a > b),
}


def _comparison(modifiers: list[str], operands: int) -> tuple[Function, str, list[str]] | None:
    """setp.test{.and|.or|.xor}{.ftz}.type p, a, b{, q}; two destinations are not taken."""
    test, *rest, kind = modifiers
    real = kind in (*FLOATS, "bf16")
    table = COMPARE | UNORDERED if real else COMPARE
    function = table.get(test)
    flush = "ftz" in rest
    rest = [m for m in rest if m != "ftz"]
    if function is None or kind not in DTYPES or len(rest) > 1:
        return None
    if flush:
        inner = function
        function = lambda a, b: inner(numbers.flushed(a), numbers.flushed(b))  # noqa: E731
    if not rest:
        return (function, "pred", [kind, kind]) if operands == 3 else None
    combine, compare = LOGIC.get(rest[0]), function
    if combine is None or operands != 4:
        return None
    return lambda a, b, q: combine(compare(a, b), q), "pred", [kind, kind, "pred"]


def _conversion(modifiers: list[str]) -> tuple[Function, str, list[str]] | None:
    *rest, to, source = modifiers
    flush = "ftz" in rest
    rest = [m for m in rest if m != "ftz"]
    rounding = rest[0] if rest else ""
    if to not in DTYPES or source not in DTYPES or len(rest) > 1:
        return None
    whole = rounding in numbers.ROUND
    function = None
    if to in ("bf16x2", "f16x2") and source == "f32" and rounding == "rn":
        return (_pair if to == "bf16x2" else _half_pair), to, ["f32", "f32"]
    if to == "bf16" and source == "f32" and rounding == "rn":
        function = numbers.f32_to_bf16
    elif source == "bf16" and to in FLOATS and not rounding:
        function = lambda x: _as(x, DTYPES[to])  # noqa: E731
    elif source in REALS and to in REALS:
        dtype = DTYPES[to]
        if whole and source == to:
            function = numbers.ROUND[rounding]
        elif rounding == ("rn" if SIZES[to] < SIZES[source] else ""):
            function = lambda x: _as(x, dtype)  # noqa: E731
    elif source in FLOATS and to[0] in "us" and whole:
        function = lambda x: numbers.to_integer(x, DTYPES[to], rounding)  # noqa: E731
    elif source[0] in "us" and (
        rounding == "rn" if to in FLOATS else to[0] in "us" and not rounding
    ):
        function = lambda x: _as(x, DTYPES[to])  # noqa: E731
    if function is None:
        return None
    if flush and source == "f32":
        inner = function
        function = lambda x: inner(numbers.flushed(x))  # noqa: E731
    return function, to, [source]


def _pair(upper: Array, lower: Array) -> Array:
    high = numbers.f32_to_bf16(upper).astype(np.uint32)
    return (high << np.uint32(16)) | numbers.f32_to_bf16(lower).astype(np.uint32)


def _half_pair(upper: Array, lower: Array) -> Array:
    high = upper.astype(np.float16).view(np.uint16).astype(np.uint32)
    return (high << np.uint32(16)) | lower.astype(np.float16).view(np.uint16)
