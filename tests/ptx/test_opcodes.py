"""Each family of opcodes on hand-written PTX with results that are known."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

from tests.ptx import numbers
from tests.ptx.handmade import evaluate
from tests.ptx.parse import SIZES, PtxError

INF, NAN = math.inf, math.nan
TOP, TOP64 = 2**32 - 1, 2**64 - 1


def pair(low: float, high: float) -> int:
    """Two fp32 in 64 bits."""
    return int.from_bytes(struct.pack("<ff", low, high), "little")


# Instruction with %0 for the result and %1, ... for operands: types of operands, type of the
# result, and for each case the operands and the result. Floats are values, bf16 are bits.
CASES: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "add.s32 %0, %1, %2": ("s32 s32", "s32", [(2**31 - 1, 1, -(2**31)), (-3, 5, 2)]),
    "sub.u16 %0, %1, %2": ("u16 u16", "u16", [(1, 2, 65535)]),
    "mul.lo.s64 %0, %1, %2": ("s64 s64", "s64", [(-3, 2**62, 2**62), (7, -6, -42)]),
    "mul.hi.u32 %0, %1, %2": ("u32 u32", "u32", [(TOP, TOP, TOP - 1), (1 << 31, 2, 1)]),
    "mul.hi.s32 %0, %1, %2": ("s32 s32", "s32", [(-1, 1, -1), (1 << 30, 8, 2)]),
    "mul.hi.u64 %0, %1, %2": ("u64 u64", "u64", [(TOP64, TOP64, TOP64 - 1), (1 << 63, 6, 3)]),
    "mul.wide.s32 %0, %1, %2": ("s32 s32", "s64", [(-2, 2**31 - 1, -(2**32) + 2)]),
    "mul.wide.u32 %0, %1, %2": ("u32 u32", "u64", [(TOP, TOP, TOP * TOP)]),
    "mad.lo.s32 %0, %1, %2, %3": ("s32 s32 s32", "s32", [(3, -4, 5, -7)]),
    "mad.wide.u32 %0, %1, %2, %3": ("u32 u32 u64", "u64", [(TOP, 2, 5, 2 * TOP + 5)]),
    "div.s32 %0, %1, %2": ("s32 s32", "s32", [(-7, 2, -3), (7, -2, -3), (-8, -2, 4)]),
    "rem.s32 %0, %1, %2": ("s32 s32", "s32", [(-7, 2, -1), (7, -2, 1), (6, 3, 0)]),
    "div.u64 %0, %1, %2": ("u64 u64", "u64", [(TOP64, 10, TOP64 // 10), (5, 0, TOP64)]),
    "neg.s64 %0, %1": ("s64", "s64", [(5, -5)]),
    "abs.s32 %0, %1": ("s32", "s32", [(-5, 5)]),
    "min.s64 %0, %1, %2": ("s64 s64", "s64", [(-1, 1, -1)]),
    "max.u32 %0, %1, %2": ("u32 u32", "u32", [(TOP, 1, TOP)]),
    "and.b32 %0, %1, %2": ("b32 b32", "b32", [(12, 10, 8)]),
    "or.b16 %0, %1, %2": ("b16 b16", "b16", [(12, 10, 14)]),
    "xor.b64 %0, %1, %2": ("b64 b64", "b64", [(12, 10, 6)]),
    "not.b32 %0, %1": ("b32", "b32", [(0, TOP)]),
    "and.pred %0, %1, %2": ("pred pred", "pred", [(1, 1, 1), (1, 0, 0)]),
    "not.pred %0, %1": ("pred", "pred", [(1, 0), (0, 1)]),
    "shl.b32 %0, %1, %2": ("b32 u32", "b32", [(3, 4, 48), (3, 32, 0), (3, TOP, 0)]),
    "shr.u64 %0, %1, %2": ("u64 u32", "u64", [(TOP64, 63, 1), (TOP64, 64, 0)]),
    "shr.s32 %0, %1, %2": ("s32 u32", "s32", [(-8, 1, -4), (-8, 40, -1)]),
    "popc.b32 %0, %1": ("b32", "u32", [(0xF0F, 8)]),
    "clz.b64 %0, %1": ("b64", "u32", [(1, 63), (0, 64), (TOP64, 0)]),
    "selp.b32 %0, %1, %2, %3": ("b32 b32 pred", "b32", [(1, 2, 1, 1), (1, 2, 0, 2)]),
    "setp.lt.s32 %0, %1, %2": ("s32 s32", "pred", [(-1, 1, 1), (1, -1, 0)]),
    "setp.lt.u32 %0, %1, %2": ("u32 u32", "pred", [(TOP, 1, 0), (1, TOP, 1)]),
    "setp.ge.and.s64 %0, %1, %2, %3": ("s64 s64 pred", "pred", [(1, 1, 1, 1), (1, 1, 0, 0)]),
    "setp.lt.f32 %0, %1, %2": ("f32 f32", "pred", [(1.0, 2.0, 1), (NAN, 2.0, 0)]),
    "setp.geu.f64 %0, %1, %2": ("f64 f64", "pred", [(1.0, 2.0, 0), (NAN, 2.0, 1)]),
    "setp.neu.f32 %0, %1, %2": ("f32 f32", "pred", [(1.0, 1.0, 0), (NAN, NAN, 1)]),
    "setp.ne.f32 %0, %1, %2": ("f32 f32", "pred", [(1.0, 2.0, 1), (NAN, NAN, 0)]),
    "setp.nan.f32 %0, %1, %2": ("f32 f32", "pred", [(1.0, NAN, 1), (1.0, 1.0, 0)]),
    "setp.num.f32 %0, %1, %2": ("f32 f32", "pred", [(1.0, NAN, 0), (1.0, 1.0, 1)]),
    "setp.eq.bf16 %0, %1, %2": ("bf16 bf16", "pred", [(0x3F80, 0x3F80, 1), (0, 0x8000, 1)]),
    "add.f32 %0, %1, %2": ("f32 f32", "f32", [(1.0, 2**-24, 1.0), (INF, -INF, NAN)]),
    "add.ftz.f32 %0, %1, %2": ("f32 f32", "f32", [(2**-127, 2**-127, 0.0)]),
    "mul.ftz.f32 %0, %1, %2": ("f32 f32", "f32", [(-(2**-100), 2**-40, -0.0)]),
    "fma.rn.f32 %0, %1, %2, %3": ("f32 f32 f32", "f32", [
        (1 + 2**-12, 1 - 2**-12, -1.0, -(2**-24)),
        (1 + 2**-23, 1 + 2**-23, 2**-60, float(np.float32(1 + 2**-22 + 2**-46))),
        (2**12 + 1, 2**12 + 1, 2**-40, 16785410.0)]),  # just above a tie
    "fma.rn.f64 %0, %1, %2, %3": ("f64 f64 f64", "f64", [
        (1 + 2**-30, 1 - 2**-30, -1.0, -(2**-60)),
        (2.0**27 + 1, 2.0**27 + 1, 2**-40, 18014398777917442.0),
        (1e300, 1e300, -INF, -INF), (2**-600, 2**-474, 2**-1074, 2**-1073), (INF, 0.0, 1.0, NAN)]),
    "min.f32 %0, %1, %2": ("f32 f32", "f32", [(NAN, 2.0, 2.0), (0.0, -0.0, -0.0)]),
    "max.f32 %0, %1, %2, %3": ("f32 f32 f32", "f32", [(1.0, 3.0, 2.0, 3.0), (NAN, NAN, 1.0, 1.0)]),
    "max.f64 %0, %1, %2": ("f64 f64", "f64", [(1.0, NAN, 1.0), (-0.0, 0.0, 0.0)]),
    "div.rn.f64 %0, %1, %2": ("f64 f64", "f64", [(1.0, 3.0, 1 / 3), (1.0, 0.0, INF)]),
    "div.full.f32 %0, %1, %2": ("f32 f32", "f32", [(1.0, 4.0, 0.25)]),
    "sqrt.rn.f64 %0, %1": ("f64", "f64", [(2.0, math.sqrt(2)), (-1.0, NAN)]),
    "rcp.approx.ftz.f64 %0, %1": ("f64", "f64", [
        (4.0, 0.25), (3.0, float.fromhex("0x1.55555p-2"))]),
    "ex2.approx.ftz.f32 %0, %1": ("f32", "f32", [(3.0, 8.0), (-INF, 0.0), (-130.0, 0.0)]),
    "ex2.approx.f32 %0, %1": ("f32", "f32", [(-130.0, 2**-130)]),
    "add.rn.f32.bf16 %0, %1, %2": ("bf16 f32", "f32", [(0x4000, 1.0, 3.0)]),
    "sub.rn.f32.bf16 %0, %1, %2": ("bf16 f32", "f32", [(0x4000, 5.0, -3.0)]),
    "fma.rn.f32x2 %0, %1, %2, %3": ("b64 b64 b64", "b64", [
        (pair(2, 3), pair(5, 7), pair(1, -1), pair(11, 20))]),
    "sub.f32x2 %0, %1, %2": ("b64 b64", "b64", [(pair(2, 3), pair(5, 7), pair(-3, -4))]),
    "cvt.s64.s32 %0, %1": ("s32", "s64", [(-5, -5)]),
    "cvt.u64.u32 %0, %1": ("u32", "u64", [(TOP, TOP)]),
    "cvt.s32.s8 %0, %1": ("b16", "s32", [(0x1FF, -1), (0x7F, 127)]),
    "cvt.u32.u64 %0, %1": ("u64", "u32", [(TOP64 - 1, TOP - 1)]),
    "cvt.rn.f32.f64 %0, %1": ("f64", "f32", [(1 + 2**-24, 1.0), (1 + 3 * 2**-24, 1 + 2**-22)]),
    "cvt.f64.f32 %0, %1": ("f32", "f64", [(0.5, 0.5)]),
    "cvt.rn.bf16.f32 %0, %1": ("f32", "bf16", [
        (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82), (NAN, 0x7FFF)]),
    "cvt.rn.bf16x2.f32 %0, %1, %2": ("f32 f32", "b32", [(1.0, 2.0, 0x3F804000)]),
    "cvt.f32.bf16 %0, %1": ("bf16", "f32", [(0xC000, -2.0)]),
    "cvt.rn.f16x2.f32 %0, %1, %2": ("f32 f32", "b32", [(1.0, -2.0, 0x3C00C000)]),
    "cvt.rn.f16.f32 %0, %1": ("f32", "b16", [(1 + 2**-11, 0x3C00), (1 + 3 * 2**-11, 0x3C02)]),
    "cvt.f32.f16 %0, %1": ("b16", "f32", [(0xC000, -2.0)]),
    "cvt.f64.bf16 %0, %1": ("bf16", "f64", [(0xC000, -2.0)]),
    "cvt.rzi.s32.f32 %0, %1": ("f32", "s32", [
        (-2.7, -2), (1e10, 2**31 - 1), (NAN, 0), (-1e10, -(2**31))]),
    "cvt.rzi.u64.f64 %0, %1": ("f64", "u64", [(-2.7, 0), (1e30, TOP64), (2.0**63, 2**63)]),
    "cvt.rmi.ftz.f32.f32 %0, %1": ("f32", "f32", [(-2.5, -3.0), (-(2**-130), -0.0)]),
    "cvt.rni.f64.f64 %0, %1": ("f64", "f64", [(2.5, 2.0), (3.5, 4.0)]),
    "cvt.rn.f32.s64 %0, %1": ("s64", "f32", [(2**24 + 1, 2.0**24), (-3, -3.0)]),
    "mov.b32 %0, 0f3F800000": ("b32", "f32", [(0, 1.0)]),
    "mov.b64 %0, {%1, %2}": ("b32 b32", "b64", [(1, 2, (2 << 32) + 1)]),
    "mov.b32 {_, %0}, %1": ("b32", "b16", [(0x12345678, 0x1234)]),
    "createpolicy.fractional.L2::evict_last.b64 %0, 1.0": ("b32", "b64", [(0, 0)]),
}  # fmt: skip


def bits(values: Any, kind: str) -> np.ndarray:
    if kind in ("f32", "f64"):
        return np.array(values, f"f{SIZES[kind]}").view(f"u{SIZES[kind]}")
    size = max(2, SIZES[kind])
    return np.array([int(v) % 2 ** (8 * size) for v in values], np.uint64).astype(f"u{size}")


def check(instruction: str) -> None:
    operands, result, cases = CASES[instruction]
    kinds = operands.split()
    *columns, wanted = zip(*cases, strict=True)
    given = [bits(c, k) for c, k in zip(columns, kinds, strict=True)]
    with numbers.exact():
        found = evaluate(instruction, kinds, given, result)
    right = bits(wanted, result)
    if result in ("f32", "f64"):
        nan = np.isnan(right.view(f"f{SIZES[result]}"))
        assert (np.isnan(found.view(f"f{SIZES[result]}")) == nan).all()
        found, right = found[~nan], right[~nan]
    assert found.tolist() == right.tolist(), instruction


@pytest.mark.parametrize("instruction", CASES)
def test_results_are_those_of_the_manual(instruction: str) -> None:
    check(instruction)


@pytest.mark.parametrize("size", [32, 64])
def test_fused_multiply_add_rounds_once(size: int) -> None:
    """Against exact fractions, where the product nearly cancels the addend too."""
    from fractions import Fraction

    generator = np.random.default_rng(size)
    kind = np.float32 if size == 32 else np.float64
    a, b = generator.standard_normal((2, 2000)).astype(kind)
    c = np.where(np.arange(2000) % 2, -a * b, generator.standard_normal(2000)).astype(kind)
    c *= (2.0 ** generator.integers(-30, 30, 2000)).astype(kind) ** (np.arange(2000) % 4 == 2)
    found = (numbers.fma32 if size == 32 else numbers.fma64)(a, b, c)
    for x, y, z, one in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        error = abs(Fraction(float(one)) - exact)
        for side in (-np.inf, np.inf):
            neighbour = float(np.nextafter(one, kind(side)))
            other = abs(Fraction(neighbour) - exact)
            even = not int(np.asarray(one).view(f"u{size // 8}")) & 1
            assert error < other or (error == other and even)


@pytest.mark.parametrize(
    "instruction",
    ["tanh.approx.f16 %0, %1", "ex2.f32 %0, %1", "add.sat.s32 %0, %1, %1",
     "fma.rz.f32 %0, %1, %1, %1",
     "cvt.rz.f32.f64 %0, %1", "mul24.lo.s32 %0, %1, %1", "cvt.sat.s8.s32 %0, %1",
     "bfe.b32 %0, %1, %1, %1"],
)  # fmt: skip
def test_an_unknown_opcode_names_kernel_and_line(instruction: str) -> None:
    with pytest.raises(
        PtxError, match=r"opcode.*\n.*kernel handmade, line \d+.*" + instruction[:4]
    ):
        evaluate(instruction, ["b32"], [np.zeros(1, np.uint32)], "b32")
