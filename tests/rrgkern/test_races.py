"""A race planted in a compiled room is found by ThreadSanitizer, as `make sanitize` runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tvm_ffi import libinfo

ROOT = Path(__file__).parents[2]
WRITE = "sizes[g] = result.members;"
# The second writes right numbers: no comparison of bits sees it.
CHANGES = [WRITE, f"{WRITE} differ[0] = differ[0];"]
# Both in one process: an import of torch under the sanitizer takes longer than all the rest.
CALLS = """
import sys
import torch, tvm_ffi
from rrgkern import csrc
from rrgkern.advantages.op import launch

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
