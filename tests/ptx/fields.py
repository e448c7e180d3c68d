"""Instructions on the bits of a register: fields, bytes, funnel shifts, three-way logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Found = tuple[Callable[..., Array], str, list[str]]
WIDE = np.uint64


def known(base: str, modifiers: list[str], kind: str) -> Found | None:
    """Find the function of an opcode, the type of its result and of its operands."""
    bits = int(kind[1:]) if kind[1:] in ("32", "64") else 0
    if base == "bfe" and kind[0] in "us" and bits and not modifiers:
        return lambda a, b, c: extracted(a, b, c), kind, [kind, "u32", "u32"]
    if base == "bfi" and kind[0] == "b" and bits and not modifiers:
        return inserted, kind, [kind, kind, "u32", "u32"]
    if base == "brev" and kind[0] == "b" and bits and not modifiers:
        return reversed_bits, kind, [kind]
    if base == "bfind" and kind[0] in "us" and bits and modifiers in ([], ["shiftamt"]):
        return lambda a: leading(a, bool(modifiers)), "u32", [kind]
    if base == "szext" and kind in ("u32", "s32") and modifiers in (["wrap"], ["clamp"]):
        return lambda a, b: extended(a, b, modifiers[0]), kind, [kind, "u32"]
    if base == "prmt" and kind == "b32" and not modifiers:
        return permuted, kind, [kind] * 3
    if base == "shf" and kind == "b32" and len(modifiers) == 2:
        way, mode = modifiers
        if way in ("l", "r") and mode in ("clamp", "wrap"):
            return lambda a, b, c: funnel(a, b, c, way, mode), kind, [kind, kind, "u32"]
    if base == "lop3" and kind == "b32" and not modifiers:
        return looked_up, kind, [kind, kind, kind, "u32"]
    return None


def permutation(mode: str) -> Found | None:
    """Find prmt.b32 of a mode, whose two lowest bits of the third operand choose the bytes."""
    if mode not in MODES:
        return None
    table = np.array([int(selector, 16) for selector in MODES[mode]], np.uint32)
    return lambda a, b, c: permuted(a, b, table[np.asarray(c) & 3]), "b32", ["b32"] * 3


# Selectors of the four values of c: forward and backward extraction, a byte or a half everywhere,
# clamped at the left and right edge.
MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def _low(count: Array) -> Array:
    """Masks of the `count` lowest of 64 bits; 64 and more are all of them."""
    count = np.asarray(count).astype(WIDE)
    held = np.minimum(count, WIDE(63))
    return np.where(count < 64, (WIDE(1) << held) - WIDE(1), ~WIDE(0))


def _unsigned(a: Array) -> Array:
    """Bits of a register, zeros above them, in 64."""
    a = np.asarray(a)
    return a.view(f"u{a.dtype.itemsize}").astype(WIDE)


def extracted(a: Array, position: Array, length: Array) -> Array:
    """bfe: a field, moved to the lowest bits, filled up with its sign or with zeros.

    The sign of a field that reaches beyond the register is the register's highest bit.
    """
    a = np.asarray(a)
    bits = 8 * a.dtype.itemsize
    start, count = (np.asarray(x & 255).astype(WIDE) for x in (position, length))
    whole = _unsigned(a)
    field = np.where(start < bits, whole >> np.minimum(start, WIDE(63)), WIDE(0))
    inside = _low(np.minimum(count, WIDE(bits) - np.minimum(start, WIDE(bits))))
    field = field & inside
    if a.dtype.kind == "i":
        top = np.minimum(start + count - WIDE(1) * (count > 0), WIDE(bits - 1))
        sign = (whole >> top) & WIDE(1) & (count > 0)
        field = np.where(sign.astype(bool), field | ~inside, field)
    return field.astype(f"u{a.dtype.itemsize}").view(a.dtype)


def inserted(a: Array, b: Array, position: Array, length: Array) -> Array:
    """bfi: b with the lowest bits of a written over a field of it."""
    b = np.asarray(b)
    bits = 8 * b.dtype.itemsize
    start, count = (np.asarray(x & 255).astype(WIDE) for x in (position, length))
    held = np.minimum(start, WIDE(63))
    field = np.where(start < bits, _low(count) << held, WIDE(0))
    return ((_unsigned(b) & ~field) | ((_unsigned(a) << held) & field)).astype(b.dtype)


def reversed_bits(a: Array) -> Array:
    """brev: the bits in reverse order."""
    a = np.ascontiguousarray(a)
    rows = a.reshape(-1, 1).view(np.uint8)
    return np.packbits(np.unpackbits(rows, axis=1, bitorder="little"), axis=1).view(
        a.dtype.newbyteorder(">")
    ).astype(a.dtype).reshape(a.shape)  # fmt: skip


def leading(a: Array, shift_amount: bool) -> Array:
    """bfind: place of the highest 1, of a negative number the highest 0; all bits set without.

    `shift_amount`: the shift to the left that would bring that bit to the top, instead.
    """
    a = np.asarray(a)
    bits = 8 * a.dtype.itemsize
    value = _unsigned(np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a)
    for step in (1, 2, 4, 8, 16, 32):
        value = value | (value >> WIDE(step))
    count = np.bitwise_count(value).astype(np.uint32)
    place = bits - count if shift_amount else count - 1
    return np.where(count == 0, np.uint32(0xFFFFFFFF), place).astype(np.uint32)


def extended(a: Array, width: Array, mode: str) -> Array:
    """szext: the lowest `width` bits, filled up with their sign or with zeros."""
    a = np.asarray(a)
    width = np.minimum(width, 32) if mode == "clamp" else np.asarray(width) & 31
    return extracted(a, np.zeros_like(width), width)


def permuted(a: Array, b: Array, selector: Array) -> Array:
    """prmt.b32: four bytes of a and b, each picked by four bits of the selector."""
    both = a.astype(WIDE) | (np.asarray(b).astype(WIDE) << WIDE(32))
    result = np.zeros_like(a)
    for place in range(4):
        pick = (selector >> np.uint32(4 * place)) & np.uint32(15)
        byte = (both >> ((pick & 7) * 8).astype(WIDE)) & WIDE(0xFF)
        sign = np.where(byte & WIDE(0x80), WIDE(0xFF), WIDE(0))
        chosen = np.where(pick & 8, sign, byte).astype(np.uint32)
        result = result | (chosen << np.uint32(8 * place))
    return result


def funnel(a: Array, b: Array, count: Array, way: str, mode: str) -> Array:
    """shf: the upper half of (b, a) shifted left, or the lower half of it shifted right."""
    both = np.asarray(a).astype(WIDE) | (np.asarray(b).astype(WIDE) << WIDE(32))
    by = np.minimum(count, 32) if mode == "clamp" else np.asarray(count) & 31
    by = np.asarray(by).astype(WIDE)
    shifted = (both << by) >> WIDE(32) if way == "l" else both >> by
    return shifted.astype(np.uint32)


def looked_up(a: Array, b: Array, c: Array, table: Array) -> Array:
    """lop3: each bit by a table of eight, its place made of the bits of a, b and c."""
    result = np.zeros_like(np.asarray(a) & b & c)
    for place in range(8):
        chosen = (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
        result = result | np.where((table >> np.uint32(place)) & np.uint32(1), chosen, 0)
    return result.astype(np.uint32)
