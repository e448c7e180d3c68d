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
CHANGES = {"nothing": WRITE, "a place that all groups write": f"{WRITE} differ[0] = differ[0];"}
CALL = """
import torch
from rrgkern.advantages.csrc_launch import launch

torch.get_num_threads = lambda: 3
launch(torch.rand(600_000), torch.arange(0, 600_001, 10), None, "none", 1e-6)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ and its sanitizer runtimes")
@pytest.mark.parametrize("name", CHANGES)
def test_thread_sanitizer_reads_a_room_that_python_calls(name: str, tmp_path: Path) -> None:
    for folder in ("common", "advantages"):
        shutil.copytree(ROOT / "csrc" / folder, tmp_path / folder)
    source = tmp_path / "advantages" / "cpu.cc"
    text = source.read_text()
    assert text.count(WRITE) == 1
    source.write_text(text.replace(WRITE, CHANGES[name]))
    library = tmp_path / "room.so"
    flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-w", "-g", "-fsanitize=thread"]
    include = [f"-I{tmp_path}", "-isystem", libinfo.find_include_path()]
    link = ["-L", str(Path(libinfo.find_libtvm_ffi()).parent), "-ltvm_ffi", "-lpthread"]
    subprocess.run(["g++", *flags, *include, str(source), "-o", library, *link], check=True)
    runtime = subprocess.check_output(["g++", "-print-file-name=libtsan.so"], text=True).strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime,
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1 halt_on_error=1 exitcode=66",
        "RRGKERN_LIBRARY": str(library),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    # Without address randomisation: GCC 12's runtime knows no layout of the newest kernels.
    command = [*(["setarch", "-R"] if shutil.which("setarch") else []), sys.executable, "-c", CALL]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    if name == "nothing":
        assert result.returncode == 0, result.stderr
    else:
        assert result.returncode == 66 and "data race" in result.stderr, result.stderr
