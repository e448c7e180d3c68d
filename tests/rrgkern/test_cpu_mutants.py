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
import yaml
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


def planted(group: str, *checks: Callable[[], None]) -> dict[str, Mutant]:
    """The mutants of a group in `mutants.yaml`, each with its check of these."""
    named = {check.__name__: check for check in checks}
    table = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text())[group]
    return {name: Mutant(*place, named[check]) for name, (*place, check) in table.items()}


MUTANTS = planted("cpu", check_rows, check_policy, check_fused, check_kept)


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
        name, Mutant("common/simd.h", "#pragma once", "#pragma once", check_rows)
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
