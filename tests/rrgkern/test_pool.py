"""csrc's thread pool under ThreadSanitizer, with planted races, and across fork()."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mutants import faults

ROOT = Path(__file__).parents[2]
THREADS = "common/threads.h"
# Two threads meet in a race or not; on a loaded machine a run went without.
TURNS = 20
RACES = faults("races")


def build(folder: Path, tree: Path, *flags: str) -> Path:
    program = folder / "pool"
    command = ["g++", "-std=c++17", "-O1", "-g", *flags, f"-I{tree}", "-pthread"]
    main = Path(__file__).with_name("pool_main.cc")
    subprocess.run([*command, str(main), "-o", str(program)], check=True)
    return program


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    environment["TSAN_OPTIONS"] = "halt_on_error=1"
    # Without address randomisation: GCC 12's runtime knows no layout of the newest kernels.
    command = [*(["setarch", "-R"] if shutil.which("setarch") else []), str(program), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=30
    )


def dies(program: Path) -> bool:
    """Tell whether it fails or hangs."""
    try:
        return run(program).returncode != 0
    except subprocess.TimeoutExpired:
        return True


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ and its sanitizer runtimes")
class TestPool:
    @pytest.mark.gate
    def test_no_race_is_found(self, tmp_path):
        result = run(build(tmp_path, ROOT / "csrc", "-fsanitize=thread"))
        assert result.returncode == 0 and result.stdout == "sound\n", result.stderr

    @pytest.mark.gate
    @pytest.mark.parametrize("name", RACES)
    def test_a_planted_race_is_found(self, name, tmp_path):
        old, new = RACES[name]
        shutil.copytree(ROOT / "csrc" / "common", tmp_path / "csrc" / "common")
        header = tmp_path / "csrc" / THREADS
        source = header.read_text()
        assert source.count(old) == 1
        header.write_text(source.replace(old, new))
        program = build(tmp_path, tmp_path / "csrc", "-fsanitize=thread")
        assert any(dies(program) for _ in range(TURNS))

    def test_a_child_of_fork_begins_anew(self, tmp_path):
        result = run(build(tmp_path, ROOT / "csrc"), "fork")
        assert result.returncode == 0 and result.stdout == "sound\n", result.stderr
