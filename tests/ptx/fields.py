"""Instructions on the bits of a register: fields and bytes."""

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
    if base == "prmt" and kind == "b32" and not modifiers:
        return permuted, kind, [kind] * 3
    return None


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
