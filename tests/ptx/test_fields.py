"""Instructions on bits against the loops of the PTX ISA, bit by bit, at every edge; faults die."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.mutants import faults, mutate
from tests.ptx import fields, numbers, opcodes
from tests.ptx.handmade import evaluate

WORDS = (0, 1, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFF, 0x12345678, 0x8765ABCD)
LONGS = (0, 1, 1 << 63, 2**64 - 1, 0x7FFFFFFF_80000000, 0x8BADF00D_12345678)
# Beyond the width of a register, and beyond the eight bits that count.
PLACES = (0, 1, 5, 16, 31, 32, 33, 63, 64, 65, 200, 255, 256, 257, 2**32 - 1)
BYTES = (0x00, 0x7F, 0x80, 0xFF)


def bit(value: int, place: int) -> int:
    return value >> place & 1


def extract(a: int, b: int, c: int, bits: int, signed: bool) -> int:
    top, place, length = bits - 1, b & 0xFF, c & 0xFF
    sign = bit(a, min(place + length - 1, top)) if signed and length else 0
    return sum((bit(a, place + i) if i < length and place + i <= top else sign) << i
               for i in range(bits))  # fmt: skip


def insert(a: int, b: int, c: int, d: int, bits: int) -> int:
    place, length = c & 0xFF, d & 0xFF
    for i in range(length):
        if place + i <= bits - 1:
            b = b & ~(1 << place + i) | bit(a, i) << place + i
    return b


def find(a: int, bits: int, signed: bool, shift: bool) -> int:
    value = ~a & (1 << bits) - 1 if signed and bit(a, bits - 1) else a
    for place in range(bits - 1, -1, -1):
        if bit(value, place):
            return bits - 1 - place if shift else place
    return 2**32 - 1


def extend(a: int, b: int, signed: bool, clamp: bool) -> int:
    width = min(b, 32) if clamp else b & 31
    return extract(a, 0, width, 32, signed)


def bytes_of(*operands: int) -> list[int]:
    return [operand >> 8 * k & 0xFF for operand in operands for k in range(4)]


def permute(mode: str, a: int, b: int, c: int) -> int:
    source, low = bytes_of(a, b), c & 3
    chosen = {
        "f4e": [low + k for k in range(4)],
        "b4e": [(low - k) % 8 for k in range(4)],
        "rc8": [low] * 4,
        "ecl": [max(k, low) for k in range(4)],
        "ecr": [min(k, low) for k in range(4)],
        "rc16": [2 * (low & 1) + k % 2 for k in range(4)],
    }[mode]
    return sum(source[pick] << 8 * k for k, pick in enumerate(chosen))


def permute_freely(a: int, b: int, c: int) -> int:
    result = 0
    for place in range(4):
        pick = c >> 4 * place & 15
        byte = bytes_of(a, b)[pick & 7]
        result |= (0xFF * bit(byte, 7) if pick & 8 else byte) << 8 * place
    return result


def funnel(left: bool, clamp: bool, a: int, b: int, c: int) -> int:
    by, both = min(c, 32) if clamp else c & 31, b << 32 | a
    return (both << by >> 32 if left else both >> by) & 0xFFFFFFFF


def look_up(a: int, b: int, c: int, table: int) -> int:
    return sum(bit(table, 4 * bit(a, k) + 2 * bit(b, k) + bit(c, k)) << k for k in range(32))


def definitions() -> dict[str, tuple[str, str, Callable[..., int], list[tuple[int, ...]]]]:
    """Instruction: operands' types, result's type, the manual's loop, cases."""
    found: dict[str, Any] = {}
    for bits, values in ((32, WORDS), (64, LONGS)):
        triples = list(itertools.product(values, PLACES, PLACES))
        for letter in "us":
            kind = f"{letter}{bits}"
            signed = letter == "s"
            found[f"bfe.{kind} %0, %1, %2, %3"] = (
                f"{kind} u32 u32", kind,
                lambda a, b, c, bits=bits, signed=signed: extract(a, b, c, bits, signed), triples,
            )  # fmt: skip
            for shift in (False, True):
                found[f"bfind{'.shiftamt' * shift}.{kind} %0, %1"] = (
                    kind, "u32",
                    lambda a, bits=bits, signed=signed, shift=shift: find(a, bits, signed, shift),
                    [(a,) for a in values],
                )  # fmt: skip
        found[f"bfi.b{bits} %0, %1, %2, %3, %4"] = (
            f"b{bits} b{bits} u32 u32", f"b{bits}",
            lambda a, b, c, d, bits=bits: insert(a, b, c, d, bits),
            [(a, b, c, d) for a, b in zip(values, values[::-1], strict=True)
             for c, d in itertools.product(PLACES, PLACES)],
        )  # fmt: skip
        found[f"brev.b{bits} %0, %1"] = (
            f"b{bits}", f"b{bits}",
            lambda a, bits=bits: int(f"{a:0{bits}b}"[::-1], 2), [(a,) for a in values],
        )  # fmt: skip
    pairs = [(0x44332211, 0x88F76655), (0x80FF7F01, 0x12345678)]
    for mode in fields.MODES:
        found[f"prmt.b32.{mode} %0, %1, %2, %3"] = (
            "b32 b32 b32", "b32", lambda a, b, c, mode=mode: permute(mode, a, b, c),
            [(*pair, c) for pair in pairs for c in range(9)],
        )  # fmt: skip
    found["prmt.b32 %0, %1, %2, %3"] = (
        "b32 b32 b32", "b32", permute_freely,
        [(*pair, c) for pair in pairs for c in (*range(0, 1 << 16, 331), 0x7410, 0xFFFF3210)],
    )  # fmt: skip
    for way, mode in itertools.product("lr", ("clamp", "wrap")):
        found[f"shf.{way}.{mode}.b32 %0, %1, %2, %3"] = (
            "b32 b32 u32", "b32",
            lambda a, b, c, way=way, mode=mode: funnel(way == "l", mode == "clamp", a, b, c),
            list(itertools.product(WORDS, WORDS, PLACES)),
        )  # fmt: skip
    for letter, mode in itertools.product("us", ("clamp", "wrap")):
        found[f"szext.{mode}.{letter}32 %0, %1, %2"] = (
            f"{letter}32 u32", f"{letter}32",
            lambda a, b, letter=letter, mode=mode: extend(a, b, letter == "s", mode == "clamp"),
            list(itertools.product(WORDS, PLACES)),
        )  # fmt: skip
    for table in (0, 0x80, 0xEA, 0x96, 0x6F, 0xFF):
        found[f"lop3.b32 %0, %1, %2, %3, {table:#x}"] = (
            "b32 b32 b32", "b32", lambda a, b, c, table=table: look_up(a, b, c, table),
            list(itertools.product(WORDS, repeat=3)),
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


FAULTS = faults("PTX fields")


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_die(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, opcode = FAULTS[name]
    monkeypatch.setattr(opcodes, "fields", mutate(fields, old, new))
    assert any(wrong(text) for text in DEFINITIONS if text.startswith(opcode))


# Approximate instructions err by what the PTX ISA allows: no more, nearly all, both ways.
INF, NAN = math.inf, math.nan
ULP = np.spacing
Bound = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # a, true, rounded -> error


def steps(count: int) -> Bound:
    return lambda a, true, rounded: (count + 0.5) * ULP(np.abs(rounded)).astype(float)


def relative(bits: float) -> Bound:
    return lambda a, true, rounded: np.abs(true) * 2.0**-bits


# Instruction: the true function, its bound by the notes of the manual, the operands' range, and
# pairs of operand and result that the manual's tables give.
INSTRUCTIONS: dict[str, tuple[Callable[..., np.ndarray], Bound, tuple[float, float],
                              list[tuple[float, float]]]] = {
    "ex2.approx.f32": (np.exp2, steps(2), (-120, 120),
                       [(-INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (NAN, NAN)]),
    "ex2.approx.ftz.f32": (np.exp2, steps(2), (-120, 120), [(-127.5, 0.0)]),
    "lg2.approx.f32": (np.log2, lambda a, true, rounded: 2.0**-22 * np.where(
        (a > 0.5) & (a < 2), 1, np.abs(true)), (1e-3, 20),
        [(-INF, NAN), (-1.0, NAN), (-0.0, -INF), (0.0, -INF), (INF, INF), (NAN, NAN)]),
    "rcp.approx.f32": (lambda a: 1 / a, steps(1), (-90, 90),
                       [(-INF, -0.0), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)]),
    "sqrt.approx.f32": (np.sqrt, relative(23), (0.01, 90),
                        [(-INF, NAN), (-1.0, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, INF)]),
    "rsqrt.approx.ftz.f32": (lambda a: 1 / np.sqrt(a), relative(22.9), (0.01, 90),
                             [(-INF, NAN), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)]),
    "sin.approx.f32": (np.sin, lambda a, true, rounded: np.where(
        np.abs(a) <= 2 * np.pi, 2.0**-20.5, 2.0**-14.7), (-300, 300),
        [(-INF, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, NAN)]),
    "cos.approx.f32": (np.cos, lambda a, true, rounded: np.where(
        np.abs(a) <= 2 * np.pi, 2.0**-20.5, 2.0**-14.7), (-6, 6),
        [(-INF, NAN), (-0.0, 1.0), (0.0, 1.0), (INF, NAN)]),
    "tanh.approx.f32": (np.tanh, relative(11), (-4, 4), [(-INF, -1.0), (-0.0, -0.0), (INF, 1.0)]),
    "div.full.f32": (lambda a, b: a / b, steps(2), (-90, 90), [(0.0, 0.0), (INF, INF), (NAN, NAN)]),
    "div.approx.ftz.f32": (lambda a, b: a / b, steps(2), (-90, 90), [(0.0, 0.0), (INF, INF)]),
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


def test_an_error_leaves_the_sign_and_the_range() -> None:
    smallest, largest = float.fromhex("0x1p-149"), float.fromhex("0x1.fffffep127")
    operands = np.linspace(-149.4, -147, 400)
    assert (applied("ex2.approx.f32", operands) >= smallest).all()
    assert (np.abs(applied("div.full.f32", np.full(9, largest), np.ones(9))) <= largest).all()


APPROXIMATION_FAULTS = faults("PTX approximations")


@pytest.mark.parametrize("name", APPROXIMATION_FAULTS)
def test_planted_faults_of_approximations_die(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, instruction = APPROXIMATION_FAULTS[name]
    monkeypatch.setattr(opcodes, "numbers", mutate(numbers, old, new))
    with pytest.raises(AssertionError):
        check(instruction)
