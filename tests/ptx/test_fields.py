"""Instructions on bits against the loops of the PTX ISA, bit by bit, at every edge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ptx import numbers
from tests.ptx.handmade import evaluate

WORDS = (0, 1, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFF, 0x12345678, 0x8765ABCD)
LONGS = (0, 1, 1 << 63, 2**64 - 1, 0x7FFFFFFF_80000000, 0x8BADF00D_12345678)
# Beyond the width of a register, and beyond the eight bits that count.
PLACES = (0, 1, 5, 16, 31, 32, 33, 63, 64, 65, 200, 255, 256, 257, 2**32 - 1)


def bit(value: int, place: int) -> int:
    return value >> place & 1


def extract(a: int, b: int, c: int, bits: int, signed: bool) -> int:
    top, place, length = bits - 1, b & 0xFF, c & 0xFF
    sign = bit(a, min(place + length - 1, top)) if signed and length else 0
    return sum((bit(a, place + i) if i < length and place + i <= top else sign) << i
               for i in range(bits))  # fmt: skip


def permute(a: int, b: int, c: int) -> int:
    result = 0
    for place in range(4):
        pick = c >> 4 * place & 15
        byte = (a, b)[pick >> 2 & 1] >> 8 * (pick & 3) & 0xFF
        result |= (0xFF * bit(byte, 7) if pick & 8 else byte) << 8 * place
    return result


def definitions() -> dict[str, tuple[str, str, Callable[..., int], list[tuple[int, ...]]]]:
    """Instruction: operands' types, result's type, the manual's loop, cases."""
    found: dict[str, Any] = {}
    for bits, values in ((32, WORDS), (64, LONGS)):
        for kind in (f"u{bits}", f"s{bits}"):
            found[f"bfe.{kind} %0, %1, %2, %3"] = (
                f"{kind} u32 u32", kind,
                lambda a, b, c, kind=kind, bits=bits: extract(a, b, c, bits, kind[0] == "s"),
                list(itertools.product(values, PLACES, PLACES)),
            )  # fmt: skip
    found["prmt.b32 %0, %1, %2, %3"] = (
        "b32 b32 b32", "b32", permute,
        [(*pair, c) for pair in [(0x44332211, 0x88F76655), (0x80FF7F01, 0x12345678)]
         for c in (*range(0, 1 << 16, 331), 0x7410, 0xFFFF3210)],
    )  # fmt: skip
    return found


DEFINITIONS = definitions()


def wrong(instruction: str) -> list[str]:
    """The cases whose result is not that of the manual's loop."""
    operands, result, definition, cases = DEFINITIONS[instruction]
    size = int(result[1:]) // 8
    kinds = operands.split()
    columns = [np.array(c, np.uint64).astype(f"u{int(k[1:]) // 8}")
               for c, k in zip(zip(*cases, strict=True), kinds, strict=True)]  # fmt: skip
    found = evaluate(instruction, kinds, columns, result).tolist()
    wanted = [definition(*case) % (1 << 8 * size) for case in cases]
    results = zip(cases, found, wanted, strict=True)
    return [f"{instruction} {case}: {one:#x}, wanted {other:#x}"
            for case, one, other in results if one != other]  # fmt: skip


def test_bits_are_those_of_the_manual() -> None:
    assert [line for instruction in DEFINITIONS for line in wrong(instruction)[:3]] == []


# Approximate instructions err by what the PTX ISA allows: no more, nearly all, both ways.
INF, NAN = math.inf, math.nan
ULP = np.spacing
Bound = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # a, true, rounded -> error


def steps(count: int) -> Bound:
    return lambda a, true, rounded: (count + 0.5) * ULP(np.abs(rounded)).astype(float)


# Instruction: the true function, its bound by the notes of the manual, the operands' range, and
# pairs of operand and result that the manual's tables give.
INSTRUCTIONS: dict[str, tuple[Callable[..., np.ndarray], Bound, tuple[float, float],
                              list[tuple[float, float]]]] = {
    "ex2.approx.f32": (np.exp2, steps(2), (-120, 120),
                       [(-INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (NAN, NAN)]),
    "ex2.approx.ftz.f32": (np.exp2, steps(2), (-120, 120), [(-127.5, 0.0)]),
    "div.full.f32": (lambda a, b: a / b, steps(2), (-90, 90), [(0.0, 0.0), (INF, INF), (NAN, NAN)]),
}  # fmt: skip


def applied(name: str, *operands: np.ndarray) -> np.ndarray:
    numbers = ", ".join(f"%{k}" for k in range(1, len(operands) + 1))
    bits = [x.astype(np.float32).view(np.uint32) for x in operands]
    return evaluate(f"{name} %0, {numbers}", ["f32"] * len(bits), bits, "f32").view(np.float32)


def check(name: str) -> None:
    function, bound, (low, high), table = INSTRUCTIONS[name]
    generator = np.random.default_rng(0)
    count = 2 if name.startswith("div") else 1
    operands = generator.uniform(low, high, (count, 1000)).astype(np.float32)
    true = function(*operands.astype(float))
    rounded = true.astype(np.float32)
    found = applied(name, *operands)
    error, most = found - true, bound(operands[0], true, rounded)
    assert (np.abs(error) <= most).all(), f"{name} errs by more than the manual allows"
    # An ulp of the result is lost where the bound lies between two numbers.
    assert (np.abs(error) >= most - ULP(np.abs(rounded)) - ULP(np.abs(found))).all()
    assert 300 < (error > 0).sum() < 700, f"{name} errs one way"
    assert (applied(name, *operands) == found).all()
    with numbers.exact():
        assert (applied(name, *operands) == rounded).all()
    given, wanted = np.array(table, np.float32).T
    special = applied(name, given, *([np.ones_like(given)] if count == 2 else []))
    assert np.array_equal(special, wanted, equal_nan=True), f"{name}: {special}, wanted {wanted}"
    assert (np.signbit(special) == np.signbit(wanted))[~np.isnan(wanted)].all()


def test_errors_are_those_of_the_manual() -> None:
    for name in INSTRUCTIONS:
        check(name)
