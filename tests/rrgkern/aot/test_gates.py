"""Every kernel of every room, compiled for each target: no spill, wide loads, tensor cores.

RRGKERN_AOT=all compiles every case for every target; see `compile_widest` for those else.
"""

from __future__ import annotations

import os

import pytest

from tests.rrgkern.aot.harness import TARGETS, Compiled, compiled, listed_modules

pytest.importorskip("triton")

# A streaming kernel hides the latency of memory with warps; below half of them it stalls.
LEAST_OCCUPANCY = 0.5
# Not streaming, and still bound by memory.
LEAST_OCCUPANCY_OF = {"policy_loss_token_kernel": 28 / 64}


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
    least = LEAST_OCCUPANCY_OF.get(kernel.kernel, LEAST_OCCUPANCY if kernel.streaming else 0.0)
    assert kernel.occupancy >= least, f"{kernel} fits {kernel.occupancy:.0%} of warps"


def check_loops(kernel: Compiled) -> None:
    if kernel.bare:
        assert not kernel.compared, f"{kernel} compares {kernel.compared} times in its loops"


CHECKS = [check_spills, check_loads, check_matrix, check_occupancy, check_loops]


@pytest.mark.slow
def test_gates():
    modules = listed_modules()
    kernels = compiled(*modules, widest=os.environ.get("RRGKERN_AOT") != "all")
    assert {kernel.room for kernel in kernels} == {module.split(".")[-2] for module in modules}
    # Each kernel is compiled for each target, though not in each case.
    assert set(LEAST_OCCUPANCY_OF) <= {kernel.kernel for kernel in kernels}
    targets = {(kernel.room, kernel.kernel, kernel.cc) for kernel in kernels}
    assert targets == {(room, name, cc) for room, name, _ in targets for cc in TARGETS}
    refused = []
    for kernel in kernels:
        for check in CHECKS:
            try:
                check(kernel)
            except AssertionError as error:
                refused.append(str(error))
    assert not refused, "\n".join(refused)


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
