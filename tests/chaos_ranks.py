"""Runs of two nodes of two ranks, disturbed at random moments, resumed, and compared.

    python -m tests.chaos_ranks --moments 8

A rank is killed (as for memory), stopped so that it does not answer, or loses the worker that reads
its images. The run has to end in one line that says so, within the time limit, and to go on to the
same weights, metrics, samples and summary as one that was left alone. Exits 1 where one does
not, and keeps its directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import trials_of
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.run.test_scale_runs import RUN
from tests.rrgtrain.runs import Done, differences

KINDS = ("killed", "stopped", "worker")
TIMEOUT = 15
SPREAD = [*RUN, "scale.mode=fsdp2", f"scale.timeout={TIMEOUT}", "data.workers=1"]
# Before the ranks have met.
EARLY = ("processes have started within", "ended before all processes had started")
# A rank that found the run over, or was ended by torchrun, may tell a signal in its place.
SAID = {
    "killed": ("another rank is gone (", "between collectives", "stopped by SIGTERM", *EARLY),
    "stopped": ("another rank is gone (", "between collectives", "stopped by SIGTERM", *EARLY),
    "worker": ("a process that reads images died", "stopped by SIGTERM"),
}


@dataclass(frozen=True)
class Disturbance:
    """A `kind` of harm to a rank, `share` of a whole run's seconds after it has started."""

    kind: str
    rank: int
    share: float
    seconds: float

    def __call__(self, places: Sequence[Path]) -> None:
        """Do the harm, if the rank is there still."""
        pid = _started(places[self.rank])
        time.sleep(self.share * self.seconds)
        process = int(pid.read_text())
        if (places[self.rank] / "status").exists():
            return
        target = process if self.kind != "worker" else _worker_of(process)
        while target is None:  # between two loops
            if (places[self.rank] / "status").exists():
                return
            time.sleep(0.01)
            target = _worker_of(process)
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(target, signal.SIGSTOP if self.kind == "stopped" else signal.SIGKILL)


def _started(place: Path) -> Path:
    """Wait until a rank has started; the file that holds its process."""
    pid = place / "pid"
    while not pid.exists() or not pid.read_text():
        time.sleep(0.01)
    return pid


def _worker_of(process: int) -> int | None:
    """Find a process that reads images for a rank; None between two loops."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == process:
            return int(place.parent.name)
    return None


def trial(home: Path, disturbance: Disturbance, alone: Path) -> tuple[str, list[str]]:
    """A run disturbed once and gone on with: its last line, and what is wrong with it."""
    home.mkdir(parents=True)
    began = time.monotonic()
    done = on_nodes(*SPREAD, cwd=home, disturb=disturbance)
    seconds = time.monotonic() - began
    if all(d.status == 0 for d in done):
        return "had ended", differences(alone, home / "run")
    wrong = _wrong(disturbance, done)
    limit = 3 * disturbance.seconds + 4 * TIMEOUT + 30
    if seconds > limit:
        wrong.append(f"took {seconds:.0f} s, at most {limit:.0f}")
    begun = (home / "run" / "config.yaml").exists()
    ended = on_nodes(*(["rl", "--resume", "run"] if begun else SPREAD), cwd=home)
    if any(d.status for d in ended):
        return _line(done), [*wrong, f"resumed: {[d.status for d in ended]}: {_line(ended)}"]
    return _line(done), wrong + differences(alone, home / "run")


def _undisturbed(home: Path) -> float:
    """Run once without harm; the seconds since the last rank has started."""
    home.mkdir()
    began: list[float] = []

    def note(places: Sequence[Path]) -> None:
        _started(places[-1])
        began.append(time.monotonic())

    done = on_nodes(*SPREAD, cwd=home, disturb=note)
    assert all(d.status == 0 for d in done), [d.err for d in done]
    return time.monotonic() - began[0]


def _line(done: Sequence[Done]) -> str:
    said = [[x for x in d.err.splitlines() if x.startswith("rrgtrain: ")] for d in done]
    return next((lines[-1] for lines in said if lines), "no line")


def _wrong(disturbance: Disturbance, done: Sequence[Done]) -> list[str]:
    text = "\n".join(d.err for d in done)
    wrong = [f"rank {r} has status 0" for r, d in enumerate(done) if d.status == 0]
    if "Traceback" in text:
        wrong.append("a traceback")
    if not any(said in text for said in SAID[disturbance.kind]):
        wrong.append(f"not named: {text!r}")
    return wrong


def main() -> int:
    """Runs the trials and prints a line for each."""
    options, rng, base = trials_of(__doc__, 8)
    alone = base / "alone"
    # the first run of all also fills caches, and moments of its time would come too late
    seconds = min(_undisturbed(alone), _undisturbed(base / "again"))
    print(f"seed {options.seed}; a run takes {seconds:.0f} s; runs in {base}", flush=True)
    bad = 0
    for number in range(options.moments):
        kind = KINDS[number % len(KINDS)]
        share = (number + rng.random()) / options.moments
        disturbance = Disturbance(kind, rng.randrange(4), share, seconds)
        line, wrong = trial(base / str(number), disturbance, alone / "run")
        bad += bool(wrong)
        where = f"rank {disturbance.rank} {kind} at {share * seconds:.1f} s"
        print(f"{number + 1:3}  {where:28}  {line}", flush=True)
        if wrong:
            print("     WRONG: " + "; ".join(wrong[:3]), flush=True)
        else:
            shutil.rmtree(base / str(number))
    print(f"{options.moments} runs of ranks, {bad} wrong")
    if not bad:
        shutil.rmtree(base)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
