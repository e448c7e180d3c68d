"""Instructions on bits against the loops of the PTX ISA, bit by bit, at every edge; faults die."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.mutants import mutate
from tests.ptx import fields, opcodes
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


FAULTS = {
    "a field's sign is the register's": ("np.minimum(start + count - WIDE(1) * (count > 0), ",
                                         "np.minimum(start * 0 + 255, ", "bfe.s64"),
    "an empty field has a sign": (" & WIDE(1) & (count > 0)", " & WIDE(1)", "bfe.s32"),
    "a place is of five bits": ("np.asarray(x & 255).astype(WIDE) for x in (position, length))\n"
                                "    whole", "np.asarray(x & 31).astype(WIDE) for x in (position, "
                                "length))\n    whole", "bfe.u32"),
    "an insertion beyond the top wraps": ("_low(count) << held, WIDE(0))", "_low(count) << held, "
                                          "_low(count))", "bfi.b32"),
    "the table is read backwards": ("a if place & 4", "c if place & 4", "lop3.b32"),
    "a clamped shift wraps": ('by = np.minimum(count, 32) if mode == "clamp"',
                              'by = np.asarray(count) & 31 if mode == "clamp"', "shf.l.clamp"),
    "the edge is the other one": ('"3210", "3211", "3222", "3333"',
                                  '"3210", "3210", "3210", "3210"', "prmt.b32.ecl"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_die(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, opcode = FAULTS[name]
    monkeypatch.setattr(opcodes, "fields", mutate(fields, old, new))
    assert any(wrong(text) for text in DEFINITIONS if text.startswith(opcode))
