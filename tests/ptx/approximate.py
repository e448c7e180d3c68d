"""Approximate instructions of fp32, off the true value by all that the PTX ISA allows.

Which way is drawn from the bits of the operands, so a value has one result. Zeros, infinities and
NaN are exact, as the manual's tables are. A GPU errs less in most places: what passes here need
not fear its rounding. `exact()`, or RRGKERN_PTX_ROUNDING=exact, gives rounded true values instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Array = Any
Exactly = Callable[..., Array]  # fp64 operands -> fp64 result
Allowed = Callable[..., Array]  # the first operand and the true result -> absolute error
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
            up = _up(*operands)
            allowed = ALLOWED[key]
            if isinstance(allowed, int):
                return np.where(usual, _stepped(rounded, np.where(up, allowed, -allowed)), rounded)
            most = allowed(operands[0], true)
            return np.where(usual, _farthest(true, rounded, most, up), rounded)

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


def _farthest(true: Array, rounded: Array, most: Array, up: Array) -> Array:
    """The fp32 number that is farthest from the true value, on one side, within `most`."""
    found = (true + np.where(up, most, -most)).astype(np.float32)
    beyond = np.abs(found - true) > most
    return np.where(beyond, np.nextafter(found, rounded), found)


def relative(exponent: float) -> Allowed:
    """A share of the true value, 2^exponent."""
    return lambda a, true: np.abs(true) * 2.0**exponent


def _angle(a: Array, true: Array) -> Array:
    """Of sine and cosine; beyond 100 pi the manual promises nothing, and here all may be wrong."""
    size = np.abs(a)
    far = np.where(size <= 100 * np.pi, 2.0**-14.7, 2.0)
    return np.where(size <= 2 * np.pi, 2.0**-20.5, far)


def _log2(a: Array, true: Array) -> Array:
    return np.where((a > 0.5) & (a < 2), 1.0, np.abs(true)) * 2.0**-22


TRUE: dict[str, Exactly] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "div": lambda a, b: a / b,
}
# Ulps from the rounded result, or an absolute error (PTX ISA 9.7.3, notes of each instruction).
ALLOWED: dict[tuple[str, str], int | Allowed] = {
    ("ex2", "approx"): 2,
    ("lg2", "approx"): _log2,
    ("rcp", "approx"): 1,
    ("sqrt", "approx"): relative(-23),
    ("rsqrt", "approx"): relative(-22.9),
    ("sin", "approx"): _angle,
    ("cos", "approx"): _angle,
    ("tanh", "approx"): relative(-11),
    ("div", "approx"): 2,
    ("div", "full"): 2,
}
