"""Everything that needs a GPU, in one run: `make gpu`, or `python bench/gpu_suite.py [ROOM ...]`.

Builds csrc for this GPU, runs each room's tests on it without Triton's interpreter, the csrc rooms
once more under compute-sanitizer, and then the benches of the rooms whose tests are green. Rows go
to bench/results/<gpu>.jsonl, or into the folder named by OUT. Needs torch with CUDA, nvcc, tvm-ffi
and pytest; exits 2 where there is no GPU, 1 when anything is red.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def main(chosen: list[str]) -> int:
    """Run the suite on the rooms `chosen`, or on all; returns the exit status."""
    if not torch.cuda.is_available():
        print("no GPU here: `make gpu` needs a CUDA device and a CUDA build of torch")
        return 2
    rooms = sorted(path.parent.name for path in ROOT.glob("rrgkern/*/api.py"))
    if unknown := set(chosen) - set(rooms):
        print(f"no such room: {', '.join(sorted(unknown))}; wanted some of {', '.join(rooms)}")
        return 2
    rooms = chosen or rooms
    major, minor = torch.cuda.get_device_capability()
    print(
        f"{torch.cuda.get_device_name()}, sm_{major}{minor}, torch {torch.__version__}", flush=True
    )

    build = {"RRGKERN_BUILD": "cuda", "RRGKERN_CUDA_ARCHS": f"{major}{minor}"}
    if not step("build", [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], build):
        return 1
    step("doctor", [sys.executable, "-m", "rrgkern"])
    results = {room: measure(room) for room in rooms}
    print(
        "\nroom                  "
        + "".join(name.ljust(12) for name in ("tests", "memory", "bench"))
    )
    for room, states in results.items():
        print(room.ljust(22) + "".join(state.ljust(12) for state in states))
    return int(any("red" in states for states in results.values()))


def measure(room: str) -> tuple[str, str, str]:
    """State of the room's tests, of its memory accesses and of its bench; red tests, no bench."""
    tests = f"tests/rrgkern/{room}"
    if not step(f"{room}: tests", [*PYTEST, tests]):
        return "red", "-", "-"
    memory = "-"
    if (ROOT / "csrc" / room / "cuda.cu").exists():
        memory = "no tool"
        if tool := shutil.which("compute-sanitizer", path=_cuda_path()):
            # Tests marked `own_process` end the CUDA context on purpose, in a child of their own.
            options = ["--tool", "memcheck", "--error-exitcode", "1", "--target-processes", "all"]
            command = [tool, *options, *PYTEST, "-m", "not own_process", tests]
            memory = "green" if step(f"{room}: compute-sanitizer", command) else "red"
    bench = [*PYTEST, "--benchmark-quiet", f"bench/{room}.py"]
    return "green", memory, "green" if step(f"{room}: bench", bench) else "red"


def step(title: str, command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Run one command of the suite from the repository's root; True when it succeeds."""
    print(f"\n== {title}", flush=True)
    begin = time.monotonic()
    inherited = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = [str(ROOT), str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited |= {"PYTHONPATH": os.pathsep.join(paths)} | (environment or {})
    status = subprocess.run(command, cwd=ROOT, env=inherited, check=False).returncode
    print(f"== {title}: {'green' if status == 0 else 'red'}, {time.monotonic() - begin:.0f} s")
    return status == 0


def _cuda_path() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return os.pathsep.join([f"{home}/bin", os.environ.get("PATH", "")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
