"""Every kernel of every room, compiled for each target: no spill, wide loads, tensor cores."""

from __future__ import annotations

import pytest

from tests.rrgkern.aot.harness import Compiled, compiled, listed_modules

pytest.importorskip("triton")

# A streaming kernel hides the latency of memory with warps; below half of them it stalls.
LEAST_OCCUPANCY = 0.5


def check_spills(kernel: Compiled) -> None:
    assembly = kernel.assembly
    assert assembly.spill_instructions == 0 and assembly.stack_bytes == 0, f"{kernel} spills"


def check_loads(kernel: Compiled) -> None:
    if kernel.streaming:
        widest = max(kernel.assembly.load_bits, default=0)
        assert widest >= 128, f"{kernel} loads at most {widest} bits at a time"


def check_matrix(kernel: Compiled) -> None:
    if kernel.matrix:
        assert kernel.assembly.matrix_instructions, f"{kernel} has no tensor-core instruction"


def check_occupancy(kernel: Compiled) -> None:
    if kernel.streaming:
        assert kernel.occupancy >= LEAST_OCCUPANCY, f"{kernel} fits {kernel.occupancy:.0%} of warps"


def check_loops(kernel: Compiled) -> None:
    if kernel.bare:
        assert not kernel.compared, f"{kernel} compares {kernel.compared} times in its loops"


CHECKS = [check_spills, check_loads, check_matrix, check_occupancy, check_loops]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("module", listed_modules())
def test_gate(module, check):
    kernels = compiled(module)
    assert kernels
    for kernel in kernels:
        check(kernel)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "check", "passes"),
    [
        ("spill", check_spills, False),
        ("wide", check_spills, True),
        ("narrow", check_loads, False),
        ("wide", check_loads, True),
        ("no matrix", check_matrix, False),
        ("matrix", check_matrix, True),
        ("spill", check_occupancy, False),
        ("masked loop", check_loops, False),
        ("bare loop", check_loops, True),
    ],
)
def test_gate_tells_good_from_bad(case, check, passes):
    kernels = [k for k in compiled("tests.rrgkern.aot.gate_probes") if k.case == case]
    assert {kernel.cc for kernel in kernels} == {80, 90, 100}
    for kernel in kernels:
        if passes:
            check(kernel)
        else:
            with pytest.raises(AssertionError):
                check(kernel)
