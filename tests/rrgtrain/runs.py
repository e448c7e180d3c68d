"""Whole runs of the smallest size in processes that may be killed, and whether two are equal.

A process is forked from a server that has imported the trainer once, so a run costs what it
computes. It does not run Triton's interpreter: what is tested here is the trainer.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import fcntl
import functools
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from bench.ports import free_port
from rrgreport.run_files import read_metrics
from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY

TINY_RUN = [
    *OF_PHANTOM,
    *("data.phantom.thorough=1", "data.phantom.templated=1", "data.phantom.contrast=1.4"),
    *SMALL_POLICY,
    *("sft.steps=4", "sft.batch=2", "sft.eval_every=2", "sft.warmup=0"),
    *("rl.steps=4", "rl.prompts=2", "rl.group=4", "rl.max_new_tokens=10", "rl.eval_every=2"),
    *("rl.lr=0.01", "eval.max_new_tokens=10", "eval.bootstrap=20", "eval.samples=2"),
    *("checkpoint.steps=1", "deterministic=true"),
]


OF_A_SHELL: dict[int, Any] = {
    **{signal.SIGHUP: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL},
    signal.SIGINT: signal.default_int_handler,
}


@dataclass(frozen=True)
class At:
    """`act`s before the `number`-th call of a function, such as rrgtrain.train.sft:sft_loss."""

    function: str
    number: int = 1
    act: str = "SIGTERM"

    def plant(self) -> None:
        module, _, path = self.function.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        real, calls = getattr(owner, name), 0

        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls != self.number:
                return real(*args, **options)
            if self.act == "fewer":
                return {name: value[:-1] for name, value in real(*args, **options).items()}
            if self.act == "nan":
                return spoilt(real(*args, **options))
            self._act()
            return real(*args, **options)

        setattr(owner, name, call)

    def _act(self) -> None:
        if self.act == "full disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.act == "reward":
            from rrgtrain.errors import RewardError

            raise RewardError("reward term facts failed: no answer from the endpoint")
        if self.act == "hang":
            time.sleep(120)
            return
        if self.act == "bug":
            raise ZeroDivisionError("division by zero")
        for name in self.act.split("+"):
            if name == "sleep":
                time.sleep(0.5)
                continue
            signal.raise_signal(signal.Signals[name])


def spoilt(result: Any) -> Any:
    """The result of a function with NaN for its numbers (for its loss, where it has one)."""
    if isinstance(result, dict):
        return {name: value * float("nan") for name, value in result.items()}
    if hasattr(result, "loss"):
        return result._replace(loss=result.loss * float("nan"))
    if isinstance(result, tuple):
        return (result[0] * float("nan"), *result[1:])
    return result * float("nan")


@dataclass(frozen=True)
class Done:
    """Hold a command's end: its status (negative: the signal it died of), what it printed, and the
    CPU seconds it took, so far as they were watched."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def last(self) -> str:
        return self.err.splitlines()[-1]

    @property
    def end(self) -> str:
        """The status or the signal's name, then what it printed: of a fault, where it stood."""
        how = f"status {self.status}"
        if self.status < 0:
            how = f"died of {signal.Signals(-self.status).name}"
        return f"{how}:\n{self.err}"


def ends(done: list[Done]) -> str:
    """Tell how each rank ended, for an assertion's message."""
    return "\n".join(f"rank {rank} {d.end}" for rank, d in enumerate(done))


def command(
    *words: str,
    cwd: Path,
    at: At | None = None,
    kill_at: float | None = None,
    main: str = "rrgtrain.cli",
    world: dict[str, str] | None = None,
    status: int | None = None,
) -> Done:
    """`rrgtrain WORDS` in a process of its own; at `kill_at` CPU seconds it gets kill -9.

    CPU seconds, for the moment to be the same on a busy machine. cwd: made where it lacks.
    main: the module whose `main` takes the words. world: variables of its environment. status:
    asserted of its end.
    """
    cwd.mkdir(exist_ok=True)
    out, err = cwd / "out.txt", cwd / "err.txt"
    process, seconds = start_command(words, cwd, at, world, main), 0.0
    assert process.pid is not None
    while process.is_alive():
        with contextlib.suppress(OSError):  # it has just ended
            seconds = time.clock_gettime(~process.pid << 3 | 2)
        if kill_at is not None and seconds >= kill_at:
            process.kill()
        # at a moment of a run's second or two it is looked at often, which costs
        process.join(0.02 if kill_at is None else 0.002)
    assert process.exitcode is not None
    texts = [path.read_text() if path.exists() else "" for path in (out, err)]
    done = Done(process.exitcode, texts[0], texts[1], seconds)
    assert status in (None, done.status), done.end
    return done


@functools.lru_cache(maxsize=1)
def warm() -> None:
    """Have the server import the trainer, once: no test's clock counts it."""
    start_process(os.getpid).join()


def on_ranks(
    *words: str,
    cwd: Path,
    count: int = 2,
    at: At | None = None,
    rank: int = 1,
    main: str = "rrgtrain.cli",
    patience: float = 600.0,
    statuses: Sequence[int] | None = None,
) -> list[Done]:
    """The same command in as many processes as torchrun would start; `at` acts on one of them.

    What a rank prints goes to `cwd`/<rank>. `seconds` are those of the clock, and a process that
    takes more than `patience` of them is killed. main: the module whose `main` takes the words.
    statuses: asserted of their ends.
    """
    warm()
    port, began = free_port(), time.monotonic()
    processes = []
    for r in range(count):
        world = {"RANK": r, "LOCAL_RANK": r, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        (cwd / str(r)).mkdir(exist_ok=True, parents=True)
        processes.append(
            start_command(
                words,
                cwd,
                at if r == rank else None,
                {name: str(value) for name, value in world.items()},
                main,
            )
        )
    found = []
    for r, process in enumerate(processes):
        process.join(max(0.0, began + patience - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
        assert process.exitcode is not None
        texts = [(cwd / str(r) / name).read_text() for name in ("out.txt", "err.txt")]
        found.append(Done(process.exitcode, *texts, time.monotonic() - began))
    assert statuses is None or [d.status for d in found] == [*statuses], ends(found)
    return found


def start_command(
    words: tuple[str, ...],
    cwd: Path,
    at: At | None = None,
    world: dict[str, str] | None = None,
    main: str = "rrgtrain.cli",
) -> BaseProcess:
    """Start `rrgtrain WORDS` in a process of its own."""
    return start_process(_child, words, cwd, at, world or {}, main)


def start_process(target: Any, *arguments: Any) -> BaseProcess:
    """A process that calls `target`, forked from the server that has imported the trainer."""
    context = multiprocessing.get_context("forkserver")
    if forkserver._forkserver._forkserver_pid is None:  # type: ignore[attr-defined]
        context.set_forkserver_preload(["pytest", __name__, "tests.rrgtrain.warmed"])
        with _environment():
            forkserver.ensure_running()
    process = context.Process(target=_called, args=(target, *arguments))
    process.start()
    return process


def _called(target: Any, *arguments: Any) -> None:
    # as in a program: what it starts is not asked of another server, which would import all anew
    multiprocessing.set_start_method(None, force=True)
    target(*arguments)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """The server's, which its children share."""
    root = Path(__file__).resolve().parents[2]
    before = dict(os.environ)
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["no_proxy"] = "127.0.0.1"
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # as `cli` does, before torch is imported
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "python")])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def as_from_a_shell() -> dict[int, Any]:
    """Give this process the signals of a command in a terminal, and return those before.

    Under nohup SIGHUP is ignored, in a script's background SIGINT is, and children inherit both.
    """
    return {number: signal.signal(number, handler) for number, handler in OF_A_SHELL.items()}


def _child(
    words: tuple[str, ...], cwd: Path, at: At | None, world: dict[str, str], main: str
) -> None:
    as_from_a_shell()
    os.chdir(cwd)
    os.environ["XDG_CACHE_HOME"] = str(cwd / "cache")
    os.environ.update(world)
    for number, name in ((1, "out.txt"), (2, "err.txt")):
        name = os.path.join(world.get("RANK", ""), name)
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(handle, number)
    faulthandler.enable(2)  # one that dies of SIGSEGV says where
    called = importlib.import_module(main).main
    if at is not None:
        at.plant()
    raise SystemExit(called(list(words)))


@functools.cache
def _of_session() -> Path:
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if session is None:
        return Path(tempfile.mkdtemp(prefix="rrgtrain-runs-"))
    return Path(tempfile.gettempdir()) / f"rrgtrain-runs-{session}"


@functools.cache
def finished(*words: str) -> tuple[Path, float]:
    """The run of a command that nothing happens to, and its CPU seconds; not to be written to.

    The workers of a test session share it. The words name the run `run`.
    """
    home = _of_session() / hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        measured = home / "seconds"
        if not measured.exists():
            shutil.rmtree(home / "run", ignore_errors=True)  # of a worker that was killed
            done = command(*words, cwd=home)
            assert done.status == 0, done.err
            measured.write_text(repr(done.seconds))
    return home / "run", float(measured.read_text())


def finished_demo() -> tuple[Path, float]:
    """A demo that nothing happens to, and its CPU seconds; not to be written to."""
    return finished("demo", "--out", "run", *TINY_RUN)


def started(*more: str) -> list[str]:
    """Words that train the demo's fine-tuned policy further, on its phantoms."""
    run, _ = finished_demo()
    words = [w for w in TINY_RUN if not w.startswith("data.")]
    data = ["data.source=iu_xray", f"data.root={run / 'data'}"]
    return ["rl", "--from", str(run / "checkpoints" / "sft"), "--out", "run", *words, *data, *more]


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Every tensor of every final checkpoint, by path."""
    found = {}
    for path in sorted(run.glob("checkpoints/*/*.safetensors")):
        for name, tensor in load_file(path).items():
            found[f"{path.relative_to(run)}:{name}"] = tensor
    return found


def rows(run: Path) -> list[dict]:
    """The metrics without what measures time or the machine."""
    measured = ("seconds/", "speed/", "memory/", "reward_seconds/", "texts/", "endpoint/")
    return [
        {k: v for k, v in row.items() if k != "time" and not k.startswith(measured)}
        for row in read_metrics(run / "metrics.jsonl")
    ]


def differences(one: Path, two: Path) -> list[str]:
    """In what two finished runs differ; times, dates and commands do not count."""
    found = []
    left, right = weights(one), weights(two)
    if set(left) != set(right) or not left:
        found.append(f"weights: {len(left)} and {len(right)} tensors")
    found += [n for n in left if n in right and not torch.equal(left[n], right[n])]
    for number, (a, b) in enumerate(zip(rows(one), rows(two), strict=False)):
        if a != b:
            keys = [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)]
            found.append(f"metrics row {number}: {a['phase']} {a['step']}: {', '.join(keys)}")
    if len(rows(one)) != len(rows(two)):
        found.append(f"metrics: {len(rows(one))} and {len(rows(two))} rows")
    steps = [(row["phase"], row["step"]) for row in rows(two)]
    if len(set(steps)) != len(steps):
        found.append("metrics: a step stands twice")
    taken, again = ({p.name: p.read_bytes() for p in run.glob("steps/*")} for run in (one, two))
    found += [f"steps/{n}" for n in sorted(taken | again) if taken.get(n) != again.get(n)]
    for name in ("samples.jsonl", "config.yaml"):
        # what resumes have changed stands in comments on top
        texts = [re.sub(r"(?m)^# from step .*\n", "", (r / name).read_text()) for r in (one, two)]
        if texts[0] != texts[1]:
            found.append(name)
    systems = [json.loads((run / "summary.json").read_text())["systems"] for run in (one, two)]
    for system in (s for run in systems for s in run.values()):
        del system["seconds"], system["phases"]
    if systems[0] != systems[1]:
        found.append("summary.json")
    hidden = [str(p.relative_to(two)) for p in two.rglob(".*") if p.name != ".metadata"]
    if hidden:
        found.append(f"left behind: {', '.join(hidden)}")
    return found
