"""Faults planted in csrc's preference loss and advantages must die.

They are compiled for the portable instruction set alone, without optimisation.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi
from tvm_ffi import libinfo

from rrgkern import csrc
from rrgkern.advantages import op as advantages
from rrgkern.preference_loss import op as preference
from tests.rrgkern.advantages import test_cpu as group_tests
from tests.rrgkern.device import DEVICE
from tests.rrgkern.preference_loss import test_cpu as pair_tests
from tests.rrgkern.preference_loss.cases import batch, reference
from tests.rrgkern.test_cpu_mutants import CXX, FLAGS, ROOT, Mutant, planted

SOURCES = {
    "advantages": ("advantages/cpu.cc",),
    "preference_loss": ("preference_loss/cpu.cc", "preference_loss/simd.cc"),
}
pytestmark = [
    pytest.mark.skipif(CXX is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors"),
]


def check_groups() -> None:
    for std in ("none", "population", "sample"):
        for dtype in group_tests.DTYPES:
            group_tests.check_all(std, dtype)
    group_tests.test_every_number_of_16_bits()
    group_tests.test_nan_and_infinite_rewards()


def check_pairs() -> None:
    for normalized in (True, False):
        for masked in (True, False):
            data = batch(1, length_normalized=normalized, masked=masked)
            for got, want in zip(
                preference.launch(*data.arguments()), reference(*data.arguments()), strict=True
            ):
                torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)
            pair_tests.check_fp32(length_normalized=normalized, masked=masked)
    pair_tests.test_two_close_policies_keep_their_small_difference(None)
    for poison in (torch.nan, torch.inf):
        pair_tests.test_what_takes_no_part_changes_no_bit(None, None, poison)
    wide = batch(5, lengths=(1, 1), n_pairs=1, masked=False)
    apart = wide.changed(logps=wide.logps + torch.tensor([2000.0, -2000.0]), tau=1.0)
    for ends in ((0, 1), (1, 0)):
        positive, negative = (torch.tensor([end]) for end in ends)
        margin = apart.changed(positive=positive, negative=negative)
        got, want = preference.launch(*margin.arguments()), reference(*margin.arguments())
        assert got[0].isfinite() and torch.allclose(got[0], want[0])
        assert torch.allclose(got[1], want[1])


def check_weights() -> None:
    data = batch(0)
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


MUTANTS = planted("small rooms", check_groups, check_pairs, check_weights, check_finite)


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
    """csrc without a fault and with each of MUTANTS; one library, since most of it are headers."""
    trees = {f"tree_{k}": name for k, name in enumerate(["nothing", *MUTANTS])}
    sources = [written(folder, tree, MUTANTS.get(name)) for tree, name in trees.items()]
    (folder / "all.cc").write_text("".join(sources))
    output = folder / "all.so"
    link = ["-L", str(Path(libinfo.find_libtvm_ffi()).parent), "-ltvm_ffi", "-lpthread"]
    include = [f"-I{folder}", "-isystem", libinfo.find_include_path()]
    command = [CXX, *FLAGS, *include, "-shared", str(folder / "all.cc"), "-o", str(output), *link]
    subprocess.run(command, check=True)
    library = tvm_ffi.load_module(output)
    return {name: Renamed(library, f"{tree}_") for tree, name in trees.items()}


@pytest.mark.gate
def test_planted_faults_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = built(tmp_path)
    monkeypatch.delenv("RRGKERN_CPU", raising=False)
    monkeypatch.setattr(csrc, "load", lambda: libraries["nothing"])
    for check in (check_groups, check_pairs, check_finite, check_weights):
        check()
    survivors = []
    for name, mutant in MUTANTS.items():
        monkeypatch.setattr(csrc, "load", lambda name=name: libraries[name])
        try:
            mutant.check()
        except AssertionError:
            continue
        survivors.append(name)
    assert not survivors
