"""Faults planted in csrc's kernels for CPUs must fail the contract that the kernels meet.

A mutant is compiled for the portable instruction set alone, without optimisation.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import tvm_ffi
import yaml
from tvm_ffi import libinfo

from rrgkern import PolicyLoss, csrc
from rrgkern.advantages import op as advantages
from rrgkern.policy_loss import csrc_launch
from rrgkern.policy_loss.from_logits import op as from_logits
from rrgkern.preference_loss import op as preference
from tests.rrgkern.advantages import test_cpu as group_tests
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps import from_logits_oracle as rows
from tests.rrgkern.logps.test_from_logits_accuracy import compiled_cpu
from tests.rrgkern.policy_loss.cases import batch, check_fp32
from tests.rrgkern.policy_loss.from_logits import cases as fused
from tests.rrgkern.preference_loss import test_cpu as pair_tests
from tests.rrgkern.preference_loss.cases import batch as pair_batch
from tests.rrgkern.preference_loss.cases import reference

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


# The preference loss and advantages.
SOURCES = {
    "advantages": ("advantages/cpu.cc",),
    "preference_loss": ("preference_loss/cpu.cc", "preference_loss/simd.cc"),
}


def check_groups() -> None:
    for std in ("none", "population", "sample"):
        for dtype in group_tests.DTYPES:
            group_tests.check_all(std, dtype)
    group_tests.test_every_number_of_16_bits()
    group_tests.test_nan_and_infinite_rewards()


def check_pairs() -> None:
    for normalized in (True, False):
        for masked in (True, False):
            data = pair_batch(1, length_normalized=normalized, masked=masked)
            for got, want in zip(
                preference.launch(*data.arguments()), reference(*data.arguments()), strict=True
            ):
                torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)
            pair_tests.kernel.test_fp32_is_as_close_to_the_truth_as_eager(
                preference.launch, {"masked": masked}, normalized
            )
    pair_tests.test_two_close_policies_keep_their_small_difference(None)
    for poison in (torch.nan, torch.inf):
        pair_tests.test_what_takes_no_part_changes_no_bit(None, None, poison)
    wide = pair_batch(5, lengths=(1, 1), n_pairs=1, masked=False)
    apart = wide.changed(logps=wide.logps + torch.tensor([2000.0, -2000.0]), tau=1.0)
    for ends in ((0, 1), (1, 0)):
        positive, negative = (torch.tensor([end]) for end in ends)
        margin = apart.changed(positive=positive, negative=negative)
        got, want = preference.launch(*margin.arguments()), reference(*margin.arguments())
        assert got[0].isfinite() and torch.allclose(got[0], want[0])
        assert torch.allclose(got[1], want[1])


def check_weights() -> None:
    data = pair_batch(0)
    for weight in (torch.nan, -1.0):
        weighed = data.pairs._replace(weight=data.weight.index_fill(0, torch.tensor([1]), weight))
        call = preference.PreferenceInputs(
            *(data.logps, data.ref, data.offsets, weighed, data.mask, 0.1, True)
        )
        assert preference.as_passed(call) is None


def check_finite() -> None:
    rewards, offsets = torch.tensor([1.0, torch.nan, 2.0]), torch.tensor([0, 3])
    assert advantages.as_passed(rewards, offsets, None, "none", 0.0) is None
    assert advantages.as_passed(rewards, offsets, rewards.isfinite(), "none", 0.0) is not None


SMALL_MUTANTS = planted("small rooms", check_groups, check_pairs, check_weights, check_finite)


class Renamed:
    """The entry points of one of the trees that `built` compiled, by their own names."""

    def __init__(self, library: tvm_ffi.Module, prefix: str) -> None:
        self._library, self._prefix = library, prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, self._prefix + name)


def written(folder: Path, name: str, mutant: Mutant | None) -> str:
    """The source that holds csrc with `mutant` in namespace `name`; its headers are in `folder`."""
    for room in ("common", *SOURCES):
        for source in (ROOT / "csrc" / room).iterdir():
            text = source.read_text()
            if mutant and f"{room}/{source.name}" == mutant.file:
                count = text.count(mutant.old)
                assert count == 1, f"{mutant.old!r} stands {count} times in {mutant.file}"
                text = text.replace(mutant.old, mutant.new)
            text = text.replace('#include "', f'#include "{name}/')
            text = text.replace("_EXPORT_TYPED_FUNC(", f"_EXPORT_TYPED_FUNC({name}_")
            # GCC's `#pragma once` takes files of equal content for one.
            guard = f"{name}_{room}_{source.stem}"
            once = f"#ifndef {guard}\n#define {guard}\n"
            if "#pragma once" in text:
                text = text.replace("#pragma once\n", once) + "#endif\n"
            path = folder / name / room / source.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    rooms = [mutant.file.split("/")[0]] if mutant else SOURCES
    includes = [f'#include "{name}/{source}"' for room in rooms for source in SOURCES[room]]
    return "\n".join([f"#define rrgkern {name}", *includes, "#undef rrgkern\n"])


def built(folder: Path) -> dict[str, Renamed]:
    """csrc without a fault and with each of them; one library, since most of it are headers."""
    trees = {f"tree_{k}": name for k, name in enumerate(["nothing", *SMALL_MUTANTS])}
    sources = [written(folder, tree, SMALL_MUTANTS.get(name)) for tree, name in trees.items()]
    (folder / "all.cc").write_text("".join(sources))
    output = folder / "all.so"
    link = ["-L", str(Path(libinfo.find_libtvm_ffi()).parent), "-ltvm_ffi", "-lpthread"]
    include = [f"-I{folder}", "-isystem", libinfo.find_include_path()]
    command = [CXX, *FLAGS, *include, "-shared", str(folder / "all.cc"), "-o", str(output), *link]
    subprocess.run(command, check=True)
    library = tvm_ffi.load_module(output)
    return {name: Renamed(library, f"{tree}_") for tree, name in trees.items()}


@pytest.mark.gate
@pytest.mark.skipif(CXX is None, reason="needs a C++ compiler")
@pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors")
def test_planted_faults_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = built(tmp_path)
    monkeypatch.delenv("RRGKERN_CPU", raising=False)
    monkeypatch.setattr(csrc, "load", lambda: libraries["nothing"])
    for check in (check_groups, check_pairs, check_finite, check_weights):
        check()
    survivors = []
    for name, mutant in SMALL_MUTANTS.items():
        monkeypatch.setattr(csrc, "load", lambda name=name: libraries[name])
        try:
            mutant.check()
        except AssertionError:
            continue
        survivors.append(name)
    assert not survivors
