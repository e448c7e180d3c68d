"""Faults planted in csrc's kernels for CPUs must fail the contract that the kernels meet.

A mutant is compiled for the portable instruction set alone, without optimisation.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import tvm_ffi
from tvm_ffi import libinfo

from rrgkern import PolicyLoss, csrc
from rrgkern.policy_loss import csrc_launch
from rrgkern.policy_loss.from_logits import op as from_logits
from tests.rrgkern.logps import from_logits_oracle as rows
from tests.rrgkern.logps.test_from_logits_accuracy import compiled_cpu
from tests.rrgkern.policy_loss.cases import batch
from tests.rrgkern.policy_loss.from_logits import cases as fused
from tests.rrgkern.policy_loss.yardstick import check_fp32

ROOT = Path(__file__).parents[2]
CXX = shutil.which("g++") or shutil.which("clang++")
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-w", "-DRRGKERN_PORTABLE_ONLY", "-DRRGKERN_ISA=portable"]
ROOMS = ("logps", "policy_loss")


def check_rows() -> None:
    for dtype, vocabulary in ((torch.float32, 9000), (torch.bfloat16, 515), (torch.float16, 515)):
        given = rows.problem(6, vocabulary, dtype=dtype)
        for entropy in (True, False):
            rows.check(compiled_cpu(given, entropy), given, entropy=entropy)
    for dtype in (torch.bfloat16, torch.float16):  # what 16 bits hold is the rounded result
        given = rows.problem(6, 4099, dtype=dtype)
        wide = given._replace(logits=given.logits.float())
        assert torch.equal(
            compiled_cpu(given, True).gradient, compiled_cpu(wide, True).gradient.to(dtype)
        )
    given = rows.problem(5, 900, temperature=1.0)
    for lead in (40.0, 90.0):
        logits = given.logits.clamp(-3, 3).scatter(1, given.targets[:, None], lead)
        collapsed = given._replace(logits=logits)
        found = compiled_cpu(collapsed, True)
        rows.check(found, collapsed)
        assert (found.logps < 0).all()  # 1 - 1e-35: certain to a sum, not to a logarithm
    given = given._replace(logits=given.logits[:, :519], targets=torch.arange(514, 519))
    rows.check(compiled_cpu(given, True), given)


def check_policy() -> None:
    for spec in (
        PolicyLoss(beta=0.3, kl_ratio_weight=True, entropy_coef=0.1, sampler_max=0.9),
        PolicyLoss(ratio_level="sequence", beta=0.3, sampler_level="sequence"),
        PolicyLoss(surrogate="sapo", kl="k2", beta=0.1),
        PolicyLoss(surrogate="vespo"),
        PolicyLoss(surrogate="cispo"),
    ):
        data = batch(3, lengths=(5, 0, 300, 11, 2), device="cpu")
        check_fp32(spec, data, csrc_launch.launch(*data.to(torch.float32).arguments(spec)))


def check_fused() -> None:
    given = fused.problem(3, 700, dtype=torch.bfloat16)
    result = from_logits.anew_by_csrc(*fused.arguments(given, fused.EVERYTHING), True)
    fused.check(fused.Outcome(*result), given, fused.EVERYTHING)


def check_kept() -> None:
    given = fused.rising_problem(5003)
    result = from_logits.anew_by_csrc(*fused.arguments(given, fused.NO_ENTROPY), True)
    fused.check(fused.Outcome(*result), given, fused.NO_ENTROPY)


class Mutant(NamedTuple):
    """`old` in a file of csrc becomes `new`, which `check` must notice."""

    file: str
    old: str
    new: str
    check: Callable[[], None]


SIMD, SUMS = "common/simd.h", "logps/row_sums.h"
ROW, TOKEN = "logps/simd.cc", "policy_loss/simd.cc"
MUTANTS = {
    "a cheaper series": Mutant(SIMD, "s = s * r + 0.04166838899254799f;", "", check_rows),
    "bf16 cut off": Mutant(SIMD, "(u + 0x7fff + ((u >> 16) & 1)) >> 16", "u >> 16", check_rows),
    "fp16 without subnormal numbers": Mutant(
        SIMD, "magnitude < (113u << 23) ? small : normal", "normal", check_rows
    ),
    "the tail forgotten": Mutant(
        SUMS,
        "c < columns.rest_size(); c += kLanes<T>) {\n    Vector<T> p, w;",
        "c < columns.full; c += kLanes<T>) {\n    Vector<T> p, w;",
        check_rows,
    ),
    "the target in its own sum": Mutant(
        SUMS, "group[hidden - apart] = T(-INFINITY);", "", check_rows
    ),
    "the target in its own sum, near the end": Mutant(
        SUMS, "(columns - hidden)] = T(-INFINITY);", "(columns - hidden)] += T(0);", check_rows
    ),
    "columns counted twice": Mutant(
        SUMS, "c < before; ++c) last[c]", "c < 0; ++c) last[c]", check_rows
    ),
    "a logarithm's series cut off": Mutant(SIMD, "tail = tail * z + 1.0 / 3.0;", "", check_rows),
    "what a sum rounds off forgotten": Mutant(
        SIMD, "log_of(sum) + (x - (sum - 1.0)) / sum", "log_of(sum)", check_rows
    ),
    "the last rows never closed": Mutant(
        ROW, "  close(&complete, call.temperature, call.stats);\n}", "}", check_rows
    ),
    "no move to another maximum": Mutant(SUMS, "sums->sumexp *= decay;", "", check_rows),
    "1 - p at the target": Mutant(ROW, "(coef * -expm1(logp))", "(coef)", check_rows),
    "no entropy in the gradient": Mutant(ROW, "(above + g.entropy)", "above", check_rows),
    "one base for all blocks": Mutant(ROW, "as_number(*bases++)", "as_number(*bases)", check_kept),
    "the end of a row left alone": Mutant(ROW, "out[c] *= factor;", "{}", check_kept),
    "the end of a row not kept": Mutant(
        SUMS, "if (KEEP) {\n    T* to", "if (false) {\n    T* to", check_kept
    ),
    "the other side of the clip": Mutant(
        TOKEN, "s.above = (advantage > zero) & (ratio > b)", "s.above = s.below", check_policy
    ),
    "KL without its sign": Mutant(TOKEN, "*slope = -rise;", "*slope = rise;", check_policy),
    "a mean that forgets its gradient": Mutant(TOKEN, "coef[t] += pull;", "", check_policy),
    "one advantage for all": Mutant(
        TOKEN, "(policy.advantages)[s])", "(policy.advantages)[0])", check_policy
    ),
    "on-policy tokens corrected": Mutant(
        TOKEN, "return choose(injected, all<T>(T(1)), factor);", "return factor;", check_policy
    ),
    "no scale": Mutant(TOKEN, "through = scale * s.by_ratio", "through = s.by_ratio", check_fused),
}


@pytest.fixture(scope="module")
def entries(tmp_path_factory) -> dict[str, Path]:
    """The rooms' entry points, compiled once: no mutant touches them."""
    folder = tmp_path_factory.mktemp("entries")
    return {room: compiled(ROOT / "csrc", f"{room}/cpu.cc", folder / f"{room}.o") for room in ROOMS}


@functools.cache
def unchanged(room: str, folder: Path) -> Path:
    return compiled(ROOT / "csrc", f"{room}/simd.cc", folder / f"{room}_simd.o")


def compiled(tree: Path, source: str, output: Path) -> Path:
    command = [CXX, *FLAGS, f"-I{tree}", "-isystem", libinfo.find_include_path()]
    subprocess.run([*command, "-c", str(tree / source), "-o", str(output)], check=True)
    return output


def library(folder: Path, entries: dict[str, Path], tree: Path, changed: str) -> tvm_ffi.Module:
    """The two rooms with the kernels of `tree`, in which `changed` is the mutant."""
    shared = next(iter(entries.values())).parent
    kernels = [
        compiled(tree, f"{room}/simd.cc", folder / f"{room}.o")
        if changed.startswith(("common", room))
        else unchanged(room, shared)
        for room in ROOMS
    ]
    output = folder / "mutant.so"
    link = ["-L", str(Path(libinfo.find_libtvm_ffi()).parent), "-ltvm_ffi", "-lpthread"]
    objects = map(str, [*entries.values(), *kernels])
    subprocess.run([CXX, "-shared", "-o", str(output), *objects, *link], check=True)
    return tvm_ffi.load_module(output)


@pytest.mark.gate
@pytest.mark.skipif(CXX is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", [*MUTANTS, "nothing"])
def test_a_planted_fault_dies(name, entries, tmp_path, monkeypatch):
    file, old, new, check = MUTANTS.get(
        name, Mutant(SIMD, "#pragma once", "#pragma once", check_rows)
    )
    tree = tmp_path / "csrc"
    for folder in ("common", *ROOMS):
        shutil.copytree(ROOT / "csrc" / folder, tree / folder)
    source = (tree / file).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {file}"
    (tree / file).write_text(source.replace(old, new))
    module = library(tmp_path, entries, tree, file)
    monkeypatch.delenv("RRGKERN_CPU", raising=False)
    monkeypatch.setattr(csrc, "load", lambda: module)
    if name == "nothing":
        for each in (check_rows, check_policy, check_fused, check_kept):
            each()
        return
    with pytest.raises(AssertionError):
        check()
