"""Arithmetic of PTX that NumPy lacks, on arrays: fused multiply-add, bf16, flushing, conversions.

Of fp64, the approximate reciprocal is truncated as the manual says. Approximate instructions of
fp32 are off the true value by all that the PTX ISA allows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any  # an array or a scalar of NumPy


def flushed(x: Array) -> Array:
    """fp32 with subnormal numbers replaced by zeros of their sign."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b rounded, and what the rounding left (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _to_odd(total: Array, rest: Array) -> Array:
    """total + rest in fp64 rounded to odd (Boldo and Melquiond, 2008)."""
    bits = np.asarray(total).view(np.int64)
    inexact = (rest != 0) & np.isfinite(rest) & np.isfinite(total) & ((bits & 1) == 0)
    step = np.where((rest > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in fp32, rounded once."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)  # exact: 48 bits
    return _to_odd(*_two_sum(product, np.asarray(c, np.float64))).astype(np.float32)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in fp64, rounded once (Boldo and Melquiond, 2008)."""
    a, b, c = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float), np.asarray(c, float))
    product, below = _two_product(a, b)
    middle, low = _two_sum(c, below)
    high, rest = _two_sum(product, middle)
    result = high + _to_odd(*_two_sum(rest, low))
    plain = a * b + c
    size = np.maximum(np.abs(product), np.abs(c))
    wild = ~((size > 2.0**-900) & (np.maximum(np.maximum(abs(a), abs(b)), size) < 2.0**900))
    result = np.where(np.isfinite(plain) | np.isfinite(result), result, plain)
    for lane in np.flatnonzero(wild):
        x, y, z = float(a.flat[lane]), float(b.flat[lane]), float(c.flat[lane])
        if np.isinf(z) and np.isfinite(x) and np.isfinite(y):
            result.flat[lane] = z
            continue
        if not all(map(np.isfinite, (x, y, z))) or 0 in (x, y):
            result.flat[lane] = plain.flat[lane]
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        try:
            result.flat[lane] = float(exact) if exact else plain.flat[lane]
        except OverflowError:
            result.flat[lane] = np.copysign(np.inf, float(exact > 0) - 0.5)
    return result


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b rounded, and what the rounding left (Dekker)."""

    def halves(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0  # 2^27 + 1
        upper = scaled - (scaled - x)
        return upper, x - upper

    product = a * b
    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def bf16_to_f32(bits: Array) -> Array:
    """The bits of bf16 as fp32 values."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: Array) -> Array:
    """The bits of the nearest bf16, ties to even; NaN is 0x7fff."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


def larger(a: Array, b: Array) -> Array:
    """max of PTX: a number beats NaN, +0 beats -0."""
    unsigned = f"u{a.dtype.itemsize}"
    same = (a.view(unsigned) & b.view(unsigned)).view(a.dtype)
    return np.where(a == b, same, np.fmax(a, b))


def smaller(a: Array, b: Array) -> Array:
    """min of PTX: a number beats NaN, -0 beats +0."""
    unsigned = f"u{a.dtype.itemsize}"
    same = (a.view(unsigned) | b.view(unsigned)).view(a.dtype)
    return np.where(a == b, same, np.fmin(a, b))


ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def to_integer(x: Array, dtype: np.dtype, rounding: str) -> Array:
    """A float to an integer: rounded, held within the range; NaN is 0."""
    whole = ROUND[rounding](np.asarray(x, np.float64))
    info = np.iinfo(dtype)
    above, below = whole >= 2.0**info.bits / (1 if info.min == 0 else 2), whole <= info.min
    inside = np.where(np.isnan(whole) | above | below, 0, whole).astype(dtype)
    return np.where(above, info.max, np.where(below, info.min, inside)).astype(dtype)


def divided(a: Array, b: Array) -> tuple[Array, Array]:
    """Quotient towards zero, and remainder of the sign of `a`; by zero both have all bits set."""
    kind = a.dtype
    safe = np.where(b == 0, kind.type(1), b)
    if kind.kind == "u":
        quotient = a // safe
    else:
        floor = a // safe
        quotient = floor + ((floor < 0) & (floor * safe != a)).astype(kind)
    remainder = a - quotient * safe
    ones = np.array(-1).astype(kind)
    return np.where(b == 0, ones, quotient), np.where(b == 0, ones, remainder)


def high_product(a: Array, b: Array) -> Array:
    """Upper 64 bits of a product of unsigned 64-bit numbers."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = (middle & mask) + a0 * b1
    return a1 * b1 + (middle >> half) + (other >> half)


def rough_reciprocal(x: Array) -> Array:
    """rcp.approx.ftz.f64: from the upper 32 bits of x, its own lower 32 bits are 0."""
    upper = np.uint64(0xFFFFFFFF00000000)

    def cut(value: Array) -> Array:
        value = (value.view(np.uint64) & upper).view(np.float64)
        return np.where(np.abs(value) < 2.0**-1022, np.copysign(0.0, value), value)

    return cut(1.0 / cut(x))


# Which way an approximate instruction errs is drawn from the bits of the operands, so a value has
# one result. Zeros, infinities and NaN are exact, as the manual's tables are. A GPU errs less in
# most places: what passes here need not fear its rounding. `exact()`, or
# RRGKERN_PTX_ROUNDING=exact, gives rounded true values instead.
Exactly = Callable[..., Array]  # fp64 operands -> fp64 result
# How errors are made now: False gives rounded true values.
state = {"errs": os.environ.get("RRGKERN_PTX_ROUNDING", "") != "exact"}


@contextmanager
def exact() -> Iterator[None]:
    """Leave the errors out."""
    before = state["errs"]
    state["errs"] = False
    try:
        yield
    finally:
        state["errs"] = before


def known(base: str, modifiers: list[str]) -> tuple[Callable[..., Array], int] | None:
    """Find the function of an approximate fp32 opcode, and how many operands it has."""
    key = base, next((m for m in ("approx", "full") if m in modifiers), "")
    if key not in ALLOWED or set(modifiers) - {"approx", "full", "ftz"}:
        return None
    function = TRUE[base]

    def rough(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            true = function(*(np.asarray(x).astype(np.float64) for x in operands))
            rounded = true.astype(np.float32)
            if not state["errs"]:
                return rounded
            numbers = np.isfinite(rounded) & np.isfinite(operands[0])
            usual = numbers & (rounded != 0) & (operands[0] != 0)
            steps = np.where(_up(*operands), ALLOWED[key], -ALLOWED[key])
            return np.where(usual, _stepped(rounded, steps), rounded)

    return rough, 2 if base == "div" else 1


def _up(*operands: Array) -> Array:
    """A bit of a hash of the operands (the finaliser of MurmurHash3)."""
    h = np.uint32(0)
    for x in operands:
        h = (h ^ np.asarray(x, np.float32).view(np.uint32)) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        h = h ^ (h >> np.uint32(16))
    return (h & np.uint32(1)).astype(bool)


def _stepped(rounded: Array, steps: Array) -> Array:
    """`steps` ulps away from zero; no further than to the smallest and the largest number."""
    bits = np.asarray(rounded).view(np.int32)
    size = np.clip((bits & 0x7FFFFFFF) + steps, 1, 0x7F7FFFFF)
    return ((bits & np.int32(-0x80000000)) | size.astype(np.int32)).view(np.float32)


TRUE: dict[str, Exactly] = {"ex2": np.exp2, "div": lambda a, b: a / b}
# Ulps from the rounded result (PTX ISA 9.7.3, notes of each instruction).
ALLOWED = {("ex2", "approx"): 2, ("div", "full"): 2}
