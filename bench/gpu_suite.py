"""Everything that needs a GPU: `make gpu`, or `python bench/gpu_suite.py [--part N] [ROOM ...]`.

    part 1   the tests of the rooms with Triton kernels, without Triton's interpreter, and those
             of the trainer that need a GPU: the probe of backbones, rollouts by CUDA graphs
    part 2   the benches of those rooms and against the peers, and the verdict on bench/targets.py
    part 3   csrc compiled for this GPU, its tests, a profile of the head's modes, counters of
             policy_loss_from_logits's kernel (ncu), csrc's benches, its tests under
             compute-sanitizer

Each part ends within nine minutes, by itself or by stopping what runs then, and leaves what it has:
a row for each step and each measurement in bench/results/<gpu>.jsonl, its output in
bench/results/<gpu>-part<N>.log, or both in the folder named by OUT. Without --part they follow one
another. Needs torch with CUDA and pytest, part 3 nvcc and tvm-ffi; uses pytest-xdist where it is.
Exits 2 where there is no GPU, 1 when a step is red or late or a target is not met.

    python bench/gpu_suite.py --dry [--part N] [ROOM ...]

goes the same way on a CPU: tests run on the stand-in for a GPU, their first case each, benches at a
few rows, nothing is built, and the folder of rows is deleted.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "python")]

from bench import rows, targets  # noqa: E402

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
SECONDS = 520  # of a part, so that it ends within nine minutes
LONGEST_TEST = 300  # of a room's tests
# Those that the verdict and the README wait for come first.
BENCHES = (
    *("logps", "policy_loss", "shared_prefix", "policy_loss_from_logits"),
    *("linear_policy_loss", "preference_loss", "advantages"),
)


# Benches that measure several rooms, or none of rrgkern, and the rooms that call for them.
ACROSS = {"rival_shapes": {"logps", "policy_loss"}, "vision_windows": {"shared_prefix"}}


@dataclass
class Suite:
    """The steps of one part: how they are run, and what became of each."""

    part: int
    environment: dict[str, str]
    results: Path
    dry: bool = False
    jobs: int = 12
    sanitize: bool = True
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    states: dict[str, str] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The one that the rows are of."""
        return torch.device("cpu" if self.dry else "cuda")

    def step(self, title: str, command: list[str], seconds: float = SECONDS) -> bool:
        """Run one command from the repository's root; True when it succeeds within `seconds`."""
        left = min(seconds, self.until - time.monotonic())
        print(f"\n== {title}", flush=True)
        begin = time.monotonic()
        status = self._run(command, left) if left > 0 else None
        state = "late" if status is None else "green" if status == 0 else "red"
        took = time.monotonic() - begin
        print(f"== {title}: {state}, {took:.0f} s", flush=True)
        self.states[title] = state
        row = {"room": title, "case": f"part {self.part}", "provider": "suite", "state": state}
        row |= {"seconds": took, "run": self.environment["RRGKERN_RUN"]}
        rows.append(self.device, row, self.results)
        return state == "green"

    def _run(self, command: list[str], seconds: float) -> int | None:
        """Exit status; None where the command and its children were stopped."""
        inherited = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
        paths = [str(ROOT), str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        inherited |= {"PYTHONPATH": os.pathsep.join(paths)} | self.environment
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=inherited,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            os.killpg(process.pid, signal.SIGKILL)

        clock = threading.Timer(seconds, stop)
        clock.start()
        self.results.mkdir(parents=True, exist_ok=True)
        log = self.results / f"{rows.device_name(self.device)}-part{self.part}.log"
        try:
            with log.open("a") as file:
                file.write(f"$ {' '.join(command)}\n")
                for line in process.stdout or ():
                    print(line, end="", flush=True)
                    file.write(line)
            status = process.wait()
        finally:
            clock.cancel()
        return None if stopped.is_set() else status

    def tests(self, title: str, *options: str, tool: tuple[str, ...] = ()) -> bool:
        """Run pytest with `options`, under `tool`.

        A dry run goes to the stand-in and uses no tool."""
        if self.dry:
            standin = ("-p", "tests.rrgkern.standin", "-m", "not slow and not gpu")
            return self.step(title, [*PYTEST, *standin, *options], LONGEST_TEST)
        several = importlib.util.find_spec("xdist") and not tool
        workers = ("-n", str(self.jobs), "--dist", "loadgroup") if several else ()
        return self.step(title, [*tool, *PYTEST, *workers, *options], LONGEST_TEST)

    def bench(self, file: str) -> bool:
        """Measure one file.

        A dry run measures nothing of a bench that has no dry shapes."""
        dry_shapes = "bench.batch" in (ROOT / file).read_text()
        unmeasured = ["--benchmark-disable"] if self.dry and not dry_shapes else []
        return self.step(f"bench: {file}", [*PYTEST, "--benchmark-quiet", *unmeasured, file])


def test_triton(suite: Suite, rooms: list[str]) -> None:
    """Part 1."""
    suite.step("doctor", [sys.executable, "-m", "rrgkern"])
    for room in rooms:
        # What is slow beside the GPU's own tests compiles for other GPUs or counts compilations.
        chosen = () if suite.dry else ("-m", "gpu or not slow")
        suite.tests(f"{room}: tests", *chosen, f"tests/rrgkern/{room}")
    if not suite.dry:
        suite.tests(
            "trainer: tests", "-m", "gpu", "tests/rrgpolicy/model", "tests/rrgpolicy/rollout"
        )


def measure(suite: Suite, benches: list[str], run: str) -> bool:
    """Part 2; True where every target is met."""
    suite.bench("bench/against_peers.py")
    for file in benches:
        suite.bench(f"bench/{file}.py")
    path = suite.results / f"{rows.device_name(suite.device)}.jsonl"
    verdicts = targets.judge(rows.of_run(path, run))
    print(targets.table(verdicts))
    return all(verdict.state == "pass" for verdict in verdicts)


def compile_and_sanitize(suite: Suite, rooms: list[str]) -> None:
    """Part 3."""
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    if suite.dry:
        print(f"\n== build: would run {' '.join(build[1:])}")
    else:
        major, minor = torch.cuda.get_device_capability()
        suite.environment |= {"RRGKERN_BUILD": "cuda", "RRGKERN_CUDA_ARCHS": f"{major}{minor}"}
        if not suite.step("build", build):
            return
    suite.step("doctor", [sys.executable, "-m", "rrgkern"])
    folders = [f"tests/rrgkern/{room}" for room in rooms]
    if not suite.dry:
        suite.tests("csrc: tests", "-m", "gpu", *folders)
    suite.step("profile", [sys.executable, "-m", "bench.profile_head"], 90)
    _count(suite)
    for room in rooms:
        suite.bench(f"bench/{room}.py")
    # Last, since these take what time is left.
    if suite.sanitize:
        for kind in ("memcheck", "racecheck"):
            _sanitize(suite, kind, folders)


def _sanitize(suite: Suite, kind: str, folders: list[str]) -> None:
    title = f"csrc: {kind}"
    if suite.dry:
        print(f"\n== {title}: would run compute-sanitizer")
    elif tool := _tool("compute-sanitizer"):
        options = ("--tool", kind, "--error-exitcode", "1", "--target-processes", "all")
        # Tests marked `own_process` end the CUDA context on purpose, in a child.
        suite.tests(title, "-m", "gpu and not own_process", *folders, tool=(tool, *options))
    else:
        suite.states[title] = "no tool"


def _count(suite: Suite) -> None:
    """Occupancy, bytes and stalls of the kernel that makes the loss and its gradient in one."""
    bench = [*PYTEST, "--benchmark-disable", "bench/policy_loss_from_logits.py"]
    if suite.dry:
        print("\n== ncu: would run ncu on policy_loss_from_logits_kernel")
    elif tool := _tool("ncu"):
        # A borrowed GPU's clocks are left as they are.
        options = ["--set", "full", "--clock-control", "none", "--target-processes", "all"]
        chosen = ["--kernel-name", "policy_loss_from_logits_kernel", "--launch-count", "2"]
        suite.step("ncu", [tool, *options, *chosen, *bench], 90)
    else:
        suite.states["ncu"] = "no tool"


def _tool(name: str) -> str | None:
    """Path of one of CUDA's tools: of the toolkit, or of a wheel beside our packages."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = [f"{home}/bin", os.environ.get("PATH", "")]
    packages = {*sys.path, sysconfig.get_path("purelib")}
    places += [str(p.parent) for base in packages for p in Path(base).glob(f"nvidia/*/bin/{name}")]
    return shutil.which(name, path=os.pathsep.join(places))


def parts_of(rooms: list[str]) -> dict[int, list[str]]:
    """Return the rooms that parts 1 and 3 test, and part 2's bench files."""
    compiled = [room for room in rooms if (ROOT / "csrc" / room / "cuda.cu").exists()]
    triton = [room for room in rooms if room not in compiled]
    benches = [file for file in BENCHES if any(room in file for room in triton)]
    benches += [file for file, needs in ACROSS.items() if needs <= set(triton)]
    return {1: triton, 2: benches, 3: compiled}


def main(arguments: list[str]) -> int:
    """Run the parts on the rooms named, or on all; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu_suite.py", description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="default: all")
    parser.add_argument("--part", type=int, choices=(1, 2, 3), help="default: one after the other")
    parser.add_argument("--jobs", type=int, default=12, help="processes that test at a time")
    parser.add_argument("--no-sanitize", action="store_true", help="no compute-sanitizer")
    parser.add_argument("--dry", action="store_true", help="a few rows on a CPU, nothing kept")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        print("no GPU here: `make gpu` needs a CUDA device and a CUDA build of torch")
        return 2
    known = sorted(path.parent.name for path in ROOT.glob("rrgkern/*/api.py"))
    if unknown := set(options.rooms) - set(known):
        print(f"no such room: {', '.join(sorted(unknown))}; wanted some of {', '.join(known)}")
        return 2
    rooms = parts_of(options.rooms or known)
    with tempfile.TemporaryDirectory() as folder:
        environment = {}
        if options.dry:
            # "-1": no GPU is seen, so that a dry run is the same on every machine.
            environment = {"CUDA_VISIBLE_DEVICES": "-1", "RRGKERN_BENCH_DRY": "1", "OUT": folder}
            environment |= {"RRGKERN_TEST_DEVICE": "standin", "RRGKERN_STANDIN_CASES": "first"}
        status = 0
        for part in (options.part,) if options.part else (1, 2, 3):
            run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{part}"
            suite = Suite(
                part,
                {"RRGKERN_RUN": run} | environment,
                Path(folder) if options.dry else rows.RESULTS,
                dry=options.dry,
                jobs=options.jobs,
                sanitize=not options.no_sanitize,
            )
            status |= _run(suite, rooms[part], run)
        return status


def _run(suite: Suite, rooms: list[str], run: str) -> int:
    name = rows.device_name(suite.device)
    print(f"{name}, torch {torch.__version__}, part {suite.part}, run {run}", flush=True)
    met = True
    if suite.part == 1:
        test_triton(suite, rooms)
    elif suite.part == 2:
        met = measure(suite, rooms, run) or suite.dry
    else:
        compile_and_sanitize(suite, rooms)
    width = max(map(len, suite.states))
    print("\n" + "\n".join(f"{title:<{width}}  {state}" for title, state in suite.states.items()))
    written = len(rows.of_run(suite.results / f"{name}.jsonl", run))
    print(f"{written} rows of run {run}, in {'no file' if suite.dry else suite.results}")
    return int(not met or any(state in ("red", "late") for state in suite.states.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
