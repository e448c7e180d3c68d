"""The build itself: warnings are errors, refusals are one line.

That C++ compiles without a warning is asked by .ci/run, which compiles all of it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from rrgkern import __main__ as doctor
from rrgkern import csrc, dispatch
from rrgkern.triton_lib import launch_options

ROOT = Path(__file__).parents[1]
NVCC = shutil.which("nvcc", path="/usr/local/cuda/bin") or shutil.which("nvcc")


def build(tree: Path, output: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build as pip does in isolation: torch, which tvm-ffi would import, cannot be found."""
    (output / "isolated").mkdir(parents=True, exist_ok=True)
    (output / "isolated" / "torch.py").write_text("raise ImportError('no torch here')\n")
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    command += [f"--build-lib={output}", f"--build-temp={output}/objects"]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RRGKERN_")}
    inherited["PYTHONPATH"] = str(output / "isolated")
    run = {"cwd": tree, "env": inherited | environment, "capture_output": True, "text": True}
    return subprocess.run(command, check=False, **run)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the build reads, without the rooms."""
    target = tmp_path / "tree"
    shutil.copytree(ROOT / "csrc" / "build_info", target / "csrc" / "build_info")
    (target / "rrgkern").mkdir()
    for name in ("setup.py", "pyproject.toml", "LICENSE", "rrgkern/__init__.py"):
        shutil.copy(ROOT / name, target / name)
    return target


def plant(tree: Path, **bodies: str) -> None:
    """A room whose functions of an int have these bodies."""
    room = tree / "csrc" / "planted"
    room.mkdir()
    functions = [
        f"int {name}(int n) {{ {body} }}\nTVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {name})\n"
        for name, body in bodies.items()
    ]
    (room / "cpu.cc").write_text(
        "#include <tvm/ffi/function.h>\n#include <vector>\n" + "".join(functions)
    )


@pytest.mark.gate
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_cuda_compiles_without_a_warning_for_every_target(tmp_path):
    result = build(
        ROOT,
        tmp_path,
        RRGKERN_BUILD="cuda",
        RRGKERN_CUDA_ARCHS="80;90;100",
        RRGKERN_CXXFLAGS="-Wextra -Werror",
        NVCC_APPEND_FLAGS="-Werror all-warnings",
    )
    assert result.returncode == 0, result.stderr
    # Triton brings cuobjdump along; not every CUDA toolkit does.
    tools = Path(importlib.util.find_spec("triton").origin).parent / "backends" / "nvidia" / "bin"
    library = tmp_path / "rrgkern" / "_C.so"
    listing = subprocess.check_output([tools / "cuobjdump", "-lelf", library], text=True)
    assert set(re.findall(r"sm_(\d+)", listing)) == {"80", "90", "100"}


def test_a_warning_fails_a_strict_build(tree, tmp_path):
    plant(tree, warns="int unused; return n;")
    result = build(tree, tmp_path, RRGKERN_BUILD="cpu", RRGKERN_CXXFLAGS="-Werror")
    assert result.returncode != 0
    assert "failed on csrc/, its message stands above" in result.stderr
    assert "unused variable" in result.stderr


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"CXX": "no-such-compiler"}, "no C++17 compiler (looked for no-such-compiler): install"),
        ({"RRGKERN_BUILD": "gpu"}, "RRGKERN_BUILD is 'gpu', wanted auto, cuda, cpu or none"),
        (
            {"RRGKERN_BUILD": "cuda", "CUDA_HOME": "/nowhere", "PATH": ""},
            "but no nvcc in CUDA_HOME",
        ),
    ],
)
def test_refusals_are_one_line(environment, line, tmp_path):
    if environment.get("PATH") == "":
        environment |= {"CXX": shutil.which("g++") or shutil.which("clang++")}
    result = build(ROOT, tmp_path, **environment)
    assert result.returncode != 0
    said = [text for text in result.stderr.splitlines() if text.startswith("rrgkern:")]
    assert len(said) == 1
    assert line in said[0]
    assert "Traceback" not in result.stderr


def planted_tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


GPU = any(Path("/dev").glob("nvidia[0-9]*"))


@pytest.mark.skipif(GPU, reason="no case: this machine has a GPU")
def test_nothing_is_compiled_for_a_gpu_that_is_not_there_unless_asked(tree, tmp_path):
    """nvcc alone, as a toolkit or a CI image brings it, is no wish for CUDA code."""
    called, tools = tmp_path / "called", tmp_path / "tools"
    planted_tool(tools, "nvcc", f'echo "$@" >> {called}; echo compute_90; exit 0')
    planted_tool(tools, "g++", "exit 0")  # compiles nothing: who is called is all that counts
    path = {"PATH": f"{tools}:{os.environ['PATH']}", "CUDA_HOME": "/nowhere", "CXX": "g++"}
    one = "echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'"
    cases = [
        ("exit 127", {}, False),
        ("echo no devices were found; exit 6", {}, False),
        (one, {}, True),
        (one, {"RRGKERN_BUILD": "cpu"}, False),
        ("exit 127", {"RRGKERN_BUILD": "cuda"}, True),
        ("exit 127", {"RRGKERN_CUDA_ARCHS": "90"}, True),
    ]
    line = "no GPU found, compiling for CPU only (for a GPU elsewhere: RRGKERN_BUILD=cuda)"
    wrong = []
    for script, asked, wanted in cases:
        planted_tool(tools, "nvidia-smi", script)
        called.write_text("")
        result = build(tree, tmp_path / "out", **path, **asked)
        told = line in result.stdout
        if bool(called.read_text()) is not wanted or told is not (not wanted and not asked):
            wrong.append((script, asked, called.read_text(), result.stdout, result.stderr[-300:]))
    assert not wrong, wrong


def test_the_installed_extension_holds_every_room_on_disk():
    info = csrc.build_info()
    assert info is not None, csrc.HOW_TO_BUILD
    rooms = {f"{p.parent.name}:cpu" for p in (ROOT / "csrc").glob("*/cpu.cc")}
    if info.architectures:
        rooms |= {f"{p.parent.name}:cuda" for p in (ROOT / "csrc").glob("*/cuda.cu")}
    assert info.rooms == rooms, f"_C.so is stale: re{csrc.HOW_TO_BUILD}"


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (("80", "90", "100"), 86, True),
        (("80", "90", "100"), 120, True),
        (("90",), 80, False),
        (("90a",), 90, True),
        (("100f",), 103, True),
        (("100f",), 120, False),
        ((), 90, False),
    ],
)
def test_which_gpus_the_extension_runs_on(architectures, capability, runs):
    assert csrc.runs_on(architectures, capability) is runs


def test_doctor_says_of_amd_what_is_true(monkeypatch):
    card = {"name": "AMD Instinct MI300X", "gcnArchName": "gfx942:sramecc+", "major": 9, "minor": 4}
    card = types.SimpleNamespace(**card, total_memory=192 << 30)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    facts = doctor.report()
    assert facts["versions"]["rocm of torch"] == "7.0" and "cuda of torch" not in facts["versions"]
    assert facts["gpus"] == [{"name": card.name, "target": "gfx942", "gib": 192.0}]
    served = {op: cells["cuda"] for op, cells in facts["ops"].items()}
    assert served["rrgkern::policy_loss_fwd"].endswith("(compiles for AMD; no card has run it)")
    assert csrc.why_not.__wrapped__("mccs", "cuda") == "csrc holds CUDA, which no AMD GPU runs"
    assert launch_options(32, 64) == {"num_warps": 16}, "AMD's backend refuses a limit of registers"
    monkeypatch.setattr(torch.version, "hip", None)
    assert launch_options(32, 64) == {"num_warps": 32, "maxnreg": 64}


def test_doctor_names_who_serves_each_op():
    both = "from rrgkern.__main__ import main; main(['--json']); print('TABLE'); main([])"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = {"cwd": ROOT, "env": environment, "text": True}
    as_json, printed = subprocess.check_output([sys.executable, "-c", both], **run).split("TABLE")
    facts = json.loads(as_json)
    assert facts["ops"]["rrgkern::mccs"]["cpu"] == "csrc mccs"
    assert facts["extension"]["architectures"] == [
        f"sm_{arch}" for arch in csrc.build_info().architectures
    ]
    registered = {name for name, _ in dispatch._kernels}
    assert registered <= set(facts["ops"])
    for op in facts["ops"]:
        assert re.search(rf"^{op}\s+\S+", printed, re.MULTILINE)


def test_sources_that_hide_an_installation_use_its_extension_where_it_is_theirs(tmp_path):
    sources, site = tmp_path / "tree" / "rrgkern", tmp_path / "site" / "rrgkern"
    for package in (sources, site):
        left_out = shutil.ignore_patterns("_C.so", "__pycache__")
        shutil.copytree(ROOT / "rrgkern", package, ignore=left_out)
    shutil.copy(csrc.LIBRARY, site / "_C.so")
    about = site.with_name("rrgkern-1.dist-info")
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rrgkern\nVersion: 1\n")
    unset = ("TRITON_INTERPRET", "RRGKERN_LIBRARY")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    environment["PYTHONPATH"] = str(site.parent)
    run = {"cwd": sources.parent, "env": environment, "text": True}
    command = [sys.executable, "-m", "rrgkern", "--json"]
    facts = json.loads(subprocess.check_output(command, **run))
    assert facts["ops"]["rrgkern::mccs"]["cpu"] == "csrc mccs"
    assert facts["extension"]["file"] == str(site / "_C.so")
    with (sources / "mccs" / "reference.py").open("a") as source:
        source.write("# another\n")
    facts = json.loads(subprocess.check_output(command, **run))
    line = f"{sources} hides the rrgkern of {site.parent}, which serves elsewhere; "
    assert facts["extension"]["state"].startswith(line)
    assert "mccs/reference.py differs): build it with" in facts["extension"]["state"]
    assert facts["ops"]["rrgkern::mccs"]["cpu"].startswith(f"reference ({line}")
