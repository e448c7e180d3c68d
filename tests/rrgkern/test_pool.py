"""csrc's thread pool under ThreadSanitizer, with planted races, and across fork()."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tvm_ffi import libinfo

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


# A race planted in a compiled room is found by ThreadSanitizer, as `make sanitize` runs it.
WRITE = "sizes[g] = result.members;"
# The second writes right numbers: no comparison of bits sees it.
CHANGES = [WRITE, f"{WRITE} differ[0] = differ[0];"]
# Both in one process: an import of torch under the sanitizer takes longer than all the rest.
CALLS = """
import sys
import torch, tvm_ffi
from rrgkern import csrc
from rrgkern.advantages.op import launch
from tests.mutants import faults

torch.get_num_threads = lambda: 3
for library in sys.argv[1:]:
    module = tvm_ffi.load_module(library)
    csrc.load = lambda: module
    launch(torch.rand(600_000), torch.arange(0, 600_001, 10), None, "none", 1e-6)
    print("done", flush=True)
"""


def built(folder: Path, change: str) -> Path:
    """The room as a library with the sanitizer, `change` where WRITE stands."""
    for room in ("common", "advantages"):
        shutil.copytree(ROOT / "csrc" / room, folder / room)
    source = folder / "advantages" / "cpu.cc"
    text = source.read_text()
    assert text.count(WRITE) == 1
    source.write_text(text.replace(WRITE, change))
    library = folder / "room.so"
    flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-w", "-g", "-fsanitize=thread"]
    include = [f"-I{folder}", "-isystem", libinfo.find_include_path()]
    link = ["-L", str(Path(libinfo.find_libtvm_ffi()).parent), "-ltvm_ffi", "-lpthread"]
    subprocess.run(["g++", *flags, *include, str(source), "-o", library, *link], check=True)
    return library


@pytest.mark.gate
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ and its sanitizer runtimes")
def test_thread_sanitizer_reads_a_room_that_python_calls(tmp_path: Path) -> None:
    libraries = [built(tmp_path / str(k), change) for k, change in enumerate(CHANGES)]
    runtime = subprocess.check_output(["g++", "-print-file-name=libtsan.so"], text=True).strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime,
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1 halt_on_error=1 exitcode=66",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    # Without address randomisation: GCC 12's runtime knows no layout of the newest kernels.
    command = [*(["setarch", "-R"] if shutil.which("setarch") else []), sys.executable, "-c", CALLS]
    result = subprocess.run(
        [*command, *map(str, libraries)],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    # The first runs through, the second ends the process.
    assert result.stdout == "done\n", result.stderr
    assert result.returncode == 66 and "data race" in result.stderr, result.stderr
