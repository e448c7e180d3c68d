"""Faults planted in csrc's preference loss and advantages must die.

A mutant is compiled for the portable instruction set alone, without optimisation.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import tvm_ffi
from tvm_ffi import libinfo

from rrgkern import csrc
from rrgkern.advantages import csrc_launch as advantages
from rrgkern.preference_loss import csrc_launch as preference
from tests.rrgkern.advantages import test_cpu as group_tests
from tests.rrgkern.device import DEVICE
from tests.rrgkern.preference_loss import test_cpu as pair_tests
from tests.rrgkern.preference_loss.cases import batch, reference

ROOT = Path(__file__).parents[2]
CXX = shutil.which("g++") or shutil.which("clang++")
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-w", "-DRRGKERN_PORTABLE_ONLY", "-DRRGKERN_ISA=portable"]
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


class Mutant(NamedTuple):
    """`old` in a file of csrc becomes `new`, which `check` must notice."""

    file: str
    old: str
    new: str
    check: Callable[[], None]


GROUP, GROUPS = "advantages/advantages.h", "advantages/cpu.cc"
TOKENS, PAIRS = "preference_loss/simd.cc", "preference_loss/cpu.cc"
MUTANTS = {
    "dropped edits count": Mutant(GROUP, "if (!kept(i)) continue;", "", check_groups),
    "n for n - 1": Mutant(GROUP, "population ? members : members - 1", "members", check_groups),
    "equal rewards by their mean": Mutant(
        GROUP, "differs |= reward != first;", "differs |= total != reward;", check_groups
    ),
    "a NaN that is equal": Mutant(
        GROUP, "reward != first;", "reward < first || reward > first;", check_groups
    ),
    "sums in fp32": Mutant(
        GROUP, "double total = 0, first = 0;", "float total = 0, first = 0;", check_groups
    ),
    "fp16 without subnormal numbers": Mutant(
        GROUP, "std::ldexp(mantissa, -24)", "0.0", check_groups
    ),
    "rewards not asked": Mutant(
        GROUPS, "right = !finite || all_finite(values, keep, count);", "", check_finite
    ),
    "the tail forgotten": Mutant(
        TOKENS, "for (; t < count; ++t) {", "for (; false; ++t) {", check_pairs
    ),
    "the mask forgotten": Mutant(TOKENS, "left = where<T>(mask + t, left);", "", check_pairs),
    "masked tokens in the length": Mutant(TOKENS, "scored += mask[t]", "scored += 1", check_pairs),
    "no tau": Mutant(TOKENS, "x.tau * gain", "gain", check_pairs),
    "masked tokens move": Mutant(
        TOKENS, "x.mask == nullptr || x.mask[t] ? each", "true ? each", check_pairs
    ),
    "sign flip": Mutant(TOKENS, "(-(x.advantage[s]", "((x.advantage[s]", check_pairs),
    "weightless pairs": Mutant(PAIRS, "if (weight == 0) continue;", "", check_pairs),
    "a margin that overflows": Mutant(
        PAIRS, "small = std::exp(-std::fabs(margin))", "small = std::exp(-margin)", check_pairs
    ),
    "the oracle unpaid": Mutant(PAIRS, "x.advantage[pairs.positive[p]] += pull;", "", check_pairs),
    "means over all": Mutant(
        PAIRS, "sums.metrics[4] > 1 ? sums.metrics[4] : 1.0", "pairs.count", check_pairs
    ),
    "weights of any sign": Mutant(
        PAIRS, "std::isfinite(weight_of(p)) && weight_of(p) >= 0", "true", check_weights
    ),
}


def built(tree: Path, folder: Path, rooms: tuple[str, ...]) -> tvm_ffi.Module:
    """The rooms of `tree` as one library."""
    sources = [str(tree / source) for room in rooms for source in SOURCES[room]]
    output = folder / "mutant.so"
    link = ["-L", str(Path(libinfo.find_libtvm_ffi()).parent), "-ltvm_ffi", "-lpthread"]
    include = [f"-I{tree}", "-isystem", libinfo.find_include_path()]
    command = [CXX, *FLAGS, *include, "-shared", *sources, "-o", str(output), *link]
    subprocess.run(command, check=True)
    return tvm_ffi.load_module(output)


@pytest.mark.parametrize("name", [*MUTANTS, "nothing"])
def test_a_planted_fault_dies(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, old, new, check = MUTANTS.get(
        name, Mutant("common/tensors.h", "#pragma", "#pragma", check_pairs)
    )
    tree = tmp_path / "csrc"
    for folder in ("common", *SOURCES):
        shutil.copytree(ROOT / "csrc" / folder, tree / folder)
    source = (tree / file).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {file}"
    (tree / file).write_text(source.replace(old, new))
    room = file.split("/")[0]
    module = built(tree, tmp_path, (room,) if room in SOURCES else tuple(SOURCES))
    monkeypatch.delenv("RRGKERN_CPU", raising=False)
    monkeypatch.setattr(csrc, "load", lambda: module)
    if name == "nothing":
        for each in (check_groups, check_pairs, check_finite, check_weights):
            each()
        return
    with pytest.raises(AssertionError):
        check()
