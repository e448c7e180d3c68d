"""Approximate instructions err by what the PTX ISA allows: no more, nearly all, both ways."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.mutants import mutate
from tests.ptx import approximate, opcodes
from tests.ptx.handmade import evaluate

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
    with approximate.exact():
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


FAULTS = {
    "ex2 errs by three": ('("ex2", "approx"): 2', '("ex2", "approx"): 3', "ex2.approx.f32"),
    "ex2 is exact": ('("ex2", "approx"): 2', '("ex2", "approx"): 0', "ex2.approx.f32"),
    "all errors go up": ("return (h & np.uint32(1)).astype(bool)", "return h == h",
                         "rcp.approx.f32"),
    "a logarithm near 0 errs relatively": ("(a > 0.5) & (a < 2)", "a < 0", "lg2.approx.f32"),
    "one at 0 errs": ("& (operands[0] != 0)", "", "ex2.approx.f32"),
    "the bound is passed": ("np.abs(found - true) > most", "most < 0", "sqrt.approx.f32"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_die(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, instruction = FAULTS[name]
    monkeypatch.setattr(opcodes, "approximate", mutate(approximate, old, new))
    with pytest.raises(AssertionError):
        check(instruction)
