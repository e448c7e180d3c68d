"""Every kernel of every room, compiled for each target: no spill, wide loads, tensor cores.

RRGKERN_AOT=all compiles every case for every target; see `compile_widest` for those else.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.rrgkern.aot.harness import (
    AMD,
    TARGETS,
    Compiled,
    compiled,
    in_compiling_process,
    listed_modules,
)
from tests.rrgkern.aot.sass import MULTIPROCESSORS, loads_under_way

pytest.importorskip("triton")

# A streaming kernel hides the latency of memory with warps; below half of them it stalls.
LEAST_OCCUPANCY = 0.5
MOST_REGISTERS = 64
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


def check_under_way(kernel: Compiled) -> None:
    if kernel.under_way:
        loads, registers = kernel.assembly.loads_under_way, kernel.assembly.registers
        assert registers <= MOST_REGISTERS, f"{kernel} has {registers} registers"
        assert loads is not None, f"{kernel} has no loop that loads 128 bits"
        threads = round(kernel.occupancy * MULTIPROCESSORS[kernel.cc].warps) * 32
        found = loads * 16 * threads
        assert found >= kernel.under_way, f"{kernel} has {found} bytes under way"


CHECKS = [check_spills, check_loads, check_matrix, check_occupancy, check_loops, check_under_way]


@pytest.mark.gate
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


@pytest.mark.gate
@pytest.mark.slow
def test_amd_compiles():
    lines = in_compiling_process("-m", "tests.rrgkern.aot", "--amd", *listed_modules())
    made = [json.loads(line) for line in lines.splitlines()]
    assert {row["target"] for row in made} == set(AMD) and len({r["kernel"] for r in made}) >= 16
    # a block of 1,024 threads is the most that the code object allows
    assert not [row for row in made if row["spills"] or row["threads"] > 1024]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "check"),
    [("spill", check_spills), ("spill", check_occupancy), ("masked loop", check_loops)],
)
def test_gates_refuse_a_bad_kernel(case, check):
    kernels = [k for k in compiled("tests.rrgkern.aot.gate_probes") if k.case == case]
    assert {kernel.cc for kernel in kernels} == set(TARGETS)
    for kernel in kernels:
        with pytest.raises(AssertionError):
            check(kernel)


LOOP = """
        /*0100*/  {} ;
        /*0110*/  FADD R1, R1, R20 ;
        /*0120*/  {} ;
        /*0130*/  FADD R1, R1, R{} ;
        /*0140*/  {} ;
        /*0150*/  @P0 BRA 0x100 ;
        /*0160*/  EXIT ;
"""


@pytest.mark.parametrize(
    ("first", "second", "used", "third", "count"),
    [
        # Issued where the one before it is used up: one at a time.
        ("NOP", "LDG.E.128 R20, [R2.64]", 30, "NOP", 1),
        ("LDG.E.128 R20, [R2.64]", "LDG.E.128 R24, [R2.64]", 26, "NOP", 1),
        # Both are waited for at the beginning of the next turn, or each half a turn later.
        ("NOP", "LDG.E.128 R20, [R2.64]", 30, "LDG.E.128 R24, [R2.64]", 2),
        ("NOP", "LDG.E.EL.128 R20, [R2.64]", 26, "@P1 LDG.E.128 R24, [R2.64]", 2),
        ("LDG.E.128 R28, [R2.64]", "LDG.E.128 R20, [R2.64]", 26, "LDG.E.128 R24, [R2.64]", 3),
        # Copied from register to register, a load is waited for.
        ("MOV R20, R24", "NOP", 30, "LDG.E.128 R24, [R2.64]", 1),
        ("NOP", "LDG.E.64 R20, [R2.64]", 30, "NOP", None),
    ],
)
def test_loads_under_way_are_counted_round_the_loop(first, second, used, third, count):
    assert loads_under_way(LOOP.format(first, second, used, third)) == count
