"""The rooms with Triton kernels on a stand-in for a GPU, and what the stand-in must refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = sorted(
    {
        path.relative_to(ROOT / "rrgkern").parts[0]
        for path in (ROOT / "rrgkern").rglob("op.py")
        if "register_triton(" in path.read_text()
    }
)


def on_standin(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = (
        {"RRGKERN_STANDIN_CASES": "first"}
        | os.environ
        | {"RRGKERN_TEST_DEVICE": "standin"}
        | {"RRGKERN_PRODUCTS": "1"}
    )
    paths = [str(ROOT), str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    options = ["-q", "-p", "tests.rrgkern.standin", "-p", "no:cacheprovider", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.gate
@pytest.mark.slow
def test_no_room_leaves_its_tensors_on_the_cpu() -> None:
    assert ROOMS == ["advantages", "logps", "policy_loss", "preference_loss", "shared_prefix"]
    rooms = [f"tests/rrgkern/{room}" for room in ROOMS]
    run = on_standin("-m", "not slow", "--ignore-glob=*/test_cpu.py", *rooms)
    assert run.returncode == 0, run.stdout[-4000:]
    # Far more are seen than skipped: what is compiled, calls a launcher, or needs a CPU.
    words = run.stdout.splitlines()[-1].replace(",", "").split()
    counts = {word: int(count) for count, word in pairwise(words) if count.isdigit()}
    assert counts["passed"] > max(200, 4 * counts["skipped"])


FAULTS = """
import pytest, torch
from rrgkern import group_advantages
from rrgkern.dispatch import served_by
from tests.rrgkern.device import DEVICE

REWARDS, OFFSETS = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 3])

def test_moved():
    got = group_advantages(REWARDS.to(DEVICE), OFFSETS.to(DEVICE))
    assert got.device.type == DEVICE and got.cpu().sum().abs() < 1e-6

def test_left_on_the_cpu():
    group_advantages(REWARDS, OFFSETS)

def test_mixed():
    assert group_advantages(REWARDS.to(DEVICE), OFFSETS.to(DEVICE)) + REWARDS is not None

def test_served_on_the_cpu():
    assert served_by("rrgkern::group_advantages", "cpu").startswith("triton")
"""


@pytest.mark.gate
def test_what_is_red_on_a_gpu_is_red_here(tmp_path: Path) -> None:
    (tmp_path / "test_faults.py").write_text(FAULTS)
    run = on_standin(str(tmp_path / "test_faults.py"))
    assert "3 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert "on cpu: on a GPU no kernel serves it" in run.stdout
    assert "a tensor on standin, another on cpu" in run.stdout
    assert "test_served_on_the_cpu" in run.stdout
