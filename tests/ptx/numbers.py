"""Arithmetic of PTX that NumPy lacks, on arrays: fused multiply-add, bf16, flushing, conversions.

Of fp64, the approximate reciprocal is truncated as the manual says; of fp32, see `approximate.py`.
"""

from __future__ import annotations

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
