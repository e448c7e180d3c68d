"""Everything that needs a GPU, in one run: `make gpu`, or `python bench/gpu_suite.py [ROOM ...]`.

Builds csrc for this GPU, runs each room's tests on it without Triton's interpreter, the csrc rooms
once more under compute-sanitizer, then the benches of the rooms whose tests are green, the bench
against the peers that are installed, and the verdict on bench/targets.py. Rows go to
bench/results/<gpu>.jsonl, or into the folder named by OUT. Needs torch with CUDA, nvcc, tvm-ffi and
pytest; exits 2 where there is no GPU, 1 when anything is red or a target is not met.

    python bench/gpu_suite.py --peers

leaves the rooms out and measures against the peers alone.

    python bench/gpu_suite.py --dry [ROOM ...]

goes the same way on a CPU at a few rows: it builds nothing, collects tests instead of running them,
and keeps its rows in a folder that it deletes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "python")]

from bench import rows, targets  # noqa: E402

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Suite:
    """How steps are run: with what environment, and whether dry."""

    environment: dict[str, str]
    dry: bool

    def step(
        self, title: str, command: list[str], environment: dict[str, str] | None = None
    ) -> bool:
        """Run one command from the repository's root; True when it succeeds."""
        print(f"\n== {title}", flush=True)
        begin = time.monotonic()
        inherited = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
        paths = [str(ROOT), str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        inherited |= {"PYTHONPATH": os.pathsep.join(paths)}
        inherited |= self.environment | (environment or {})
        status = subprocess.run(command, cwd=ROOT, env=inherited, check=False).returncode
        state = "green" if status == 0 else "red"
        print(f"== {title}: {state}, {time.monotonic() - begin:.0f} s", flush=True)
        return status == 0

    def build(self) -> bool:
        """Compile csrc for this GPU, and say who serves each op."""
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        if self.dry:
            print(f"\n== build: would run {' '.join(command[1:])}")
        else:
            major, minor = torch.cuda.get_device_capability()
            architecture = {"RRGKERN_BUILD": "cuda", "RRGKERN_CUDA_ARCHS": f"{major}{minor}"}
            if not self.step("build", command, architecture):
                return False
        return self.step("doctor", [sys.executable, "-m", "rrgkern"])

    def tests(self, title: str, *options: str, tool: tuple[str, ...] = ()) -> bool:
        """pytest with `options`, under `tool`; a dry run collects and uses no tool."""
        dry = ["--collect-only", "-q"] if self.dry else []
        return self.step(title, [*(() if self.dry else tool), *PYTEST, *dry, *options])

    def room(self, room: str) -> tuple[str, str, str]:
        """State of the room's tests, of its memory accesses and its bench; red tests, no bench."""
        folder = f"tests/rrgkern/{room}"
        if not self.tests(f"{room}: tests", folder):
            return "red", "-", "-"
        memory = "-"
        if (ROOT / "csrc" / room / "cuda.cu").exists():
            memory = "no tool"
            if tool := shutil.which("compute-sanitizer", path=_cuda_path()):
                memory = self._sanitized(tool, room, folder)
        return "green", memory, self.bench(f"bench/{room}.py")

    def _sanitized(self, tool: str, room: str, folder: str) -> str:
        """The room's tests under both tools, whatever the first one says."""
        green = True
        for kind in ("memcheck", "racecheck"):
            options = ("--tool", kind, "--error-exitcode", "1", "--target-processes", "all")
            # Tests marked `own_process` end the CUDA context on purpose, in a child.
            chosen = ("-m", "not own_process", folder)
            green &= self.tests(f"{room}: {kind}", *chosen, tool=(tool, *options))
        return "green" if green else "red"

    def bench(self, file: str) -> str:
        """State of one bench; a dry run measures nothing of a bench that has no dry shapes."""
        dry_shapes = "bench.batch" in (ROOT / file).read_text()
        unmeasured = ["--benchmark-disable"] if self.dry and not dry_shapes else []
        command = [*PYTEST, "--benchmark-quiet", *unmeasured, file]
        return "green" if self.step(f"bench: {file}", command) else "red"


def main(arguments: list[str]) -> int:
    """Run the suite on the rooms named, or on all; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu_suite.py", description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="default: all")
    parser.add_argument("--peers", action="store_true", help="no rooms: the peers and the targets")
    parser.add_argument("--dry", action="store_true", help="a few rows on a CPU, nothing kept")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        print("no GPU here: `make gpu` needs a CUDA device and a CUDA build of torch")
        return 2
    known = sorted(path.parent.name for path in ROOT.glob("rrgkern/*/api.py"))
    if unknown := set(options.rooms) - set(known):
        print(f"no such room: {', '.join(sorted(unknown))}; wanted some of {', '.join(known)}")
        return 2
    rooms = [] if options.peers else options.rooms or known
    run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
    if not options.dry:
        return _run(Suite({"RRGKERN_RUN": run}, dry=False), rooms, rows.RESULTS, run)
    with tempfile.TemporaryDirectory() as folder:
        # "-1": no GPU is seen, so that a dry run is the same on every machine.
        environment = {"CUDA_VISIBLE_DEVICES": "-1", "RRGKERN_BENCH_DRY": "1", "OUT": folder}
        suite = Suite({"RRGKERN_RUN": run} | environment, dry=True)
        return _run(suite, rooms, Path(folder), run)


def _run(suite: Suite, rooms: list[str], results: Path, run: str) -> int:
    device = torch.device("cpu" if suite.dry else "cuda")
    print(f"{rows.device_name(device)}, torch {torch.__version__}, run {run}", flush=True)
    if not suite.build():
        return 1
    states = {room: suite.room(room) for room in rooms}
    peers = suite.bench("bench/against_peers.py")
    measured = rows.of_run(results / f"{rows.device_name(device)}.jsonl", run)
    verdicts = targets.judge(measured)

    heads = "".join(name.ljust(12) for name in ("tests", "memory", "bench"))
    print(f"\n{'room'.ljust(22)}{heads}")
    for room, state in states.items():
        print(room.ljust(22) + "".join(cell.ljust(12) for cell in state))
    print(f"{'against peers'.ljust(46)}{peers}\n")
    print(targets.table(verdicts))
    print(f"{len(measured)} rows of run {run}, in {'no file' if suite.dry else results}")
    red = peers == "red" or any("red" in state for state in states.values())
    unmet = any(verdict.state != "pass" for verdict in verdicts)
    return int(red or (unmet and not suite.dry))


def _cuda_path() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return os.pathsep.join([f"{home}/bin", os.environ.get("PATH", "")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
