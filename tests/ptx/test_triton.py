"""Every Triton kernel, compiled for sm_90 and executed: within the tolerance, mutants die.

One process does it all (`triton_cases.py`): Triton compiles only where the tests' interpreter is
not. `make slow NAME=ptx` does so for sm_80 and sm_100 too, and runs whole rooms.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
TARGETS = ("90", *(("80", "100") if os.environ.get("RRGKERN_PTX") == "all" else ()))
# Barriers that order nothing, by kernel and number. Before the sweep that writes gradients stands
# one of the source: those of the reductions already divide it from the sweep that reads.
SPARE_BARRIERS = {("policy_loss_from_logits_kernel", 11)}


@functools.cache
def outcomes(target: str) -> list[tuple[str, str, str]]:
    """Kernel, what was done to it, and how it ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRGKERN_PTX_TARGET", target)
        # a new process: rrgkern is imported behind what the cases set
        command = [sys.executable, "-m", "tests.ptx.triton_cases"]
        paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.delenv("TRITON_INTERPRET", raising=False)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    printed = done.stdout
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    return [(kernel, done, ended) for kernel, done, ended, _ in lines]


def kernels() -> Iterator[str]:
    """The kernels that the library launches, by their name in the source."""
    for path in (ROOT / "rrgkern").rglob("*.py"):
        yield from re.findall(r"@triton\.jit[^@]*?def (\w+_kernel)\(", path.read_text(), re.S)


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_compiled_kernels_are_right_and_their_mutants_are_not(target: str) -> None:
    all_kernels = set(kernels())
    assert len(all_kernels) >= 16
    results = outcomes(target)
    mutants = ("barrier", "vector", "mask", "rough")
    cases = [result for result in results if not result[1].startswith(mutants)]
    assert {kernel for kernel, _, ended in cases if ended == "equal"} == all_kernels
    assert [result for result in cases if result[2] != "equal"] == []

    masks = {kernel: ended for kernel, done, ended in results if done == "mask"}
    assert set(masks) == all_kernels
    for kernel, ended in masks.items():
        assert ended.startswith(("bounds ", "race ")), (kernel, ended)
        assert f"kernel {kernel}," in ended
    barriers = [result for result in results if result[1].startswith("barrier")]
    assert len({kernel for kernel, *_ in barriers}) >= 8
    for kernel, done, ended in barriers:
        spare = (kernel, int(done.split()[1])) in SPARE_BARRIERS
        assert ended == "equal" if spare else ended.startswith(("race ", "uninitialised ")), (
            f"{kernel}, {done} removed: {ended}"
        )
    vectors = [result for result in results if result[1].startswith("vector")]
    assert len({kernel for kernel, *_ in vectors}) >= 6
    for kernel, _, ended in vectors:
        assert ended.startswith("alignment "), (kernel, ended)
    rough = {kernel: ended for kernel, done, ended in results if done.startswith("rough")}
    assert len(rough) >= 2
    for kernel, ended in rough.items():
        assert "too far from the truth" in ended, (kernel, ended)
