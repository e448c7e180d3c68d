"""Runs that are killed at random moments, resumed, and compared with one that is left alone.

    python -m tests.chaos --moments 40

Moments are drawn over the CPU time of a whole demo, from the first phantom to the report; every
third resume is killed as well. Each run has to end in the same weights, metrics, samples and
summary, with nothing left behind. Exits 1 where one does not, and keeps its directory.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rrgreport.run_files import read_metrics
from tests.rrgtrain.runs import TINY_RUN, Done, command, differences, finished_demo

KILLED = -9


@dataclass(frozen=True)
class Trial:
    """One killed run: where the kills hit, and in what the resumed run differs."""

    phases: tuple[str, ...]
    differences: list[str]


def killed(home: Path, moments: list[float], alone: Path) -> Trial:
    """A demo killed at each of `moments` (CPU seconds of its process), then left to its end."""
    home.mkdir(parents=True)
    phases = []
    for moment in moments:
        if _go_on(home, moment).status == KILLED:
            phases.append(phase(home / "run"))
    done = _go_on(home, None)
    if done.status != 0:
        return Trial(tuple(phases), [f"status {done.status}: {done.last}"])
    return Trial(tuple(phases), differences(alone, home / "run"))


def _go_on(home: Path, moment: float | None) -> Done:
    """Resumes the run, or begins it where nothing was begun."""
    words = ["demo", "--resume", "run"]
    if not (home / "run" / "config.yaml").exists():
        words = ["demo", "--out", "run", *TINY_RUN]
    elif (home / "run" / "report.html").exists():
        return Done(0, "", "", 0.0)
    return command(*words, cwd=home, kill_at=moment)


def phase(run: Path) -> str:
    """Tell what a killed run was at, by what it left."""
    if not (run / "config.yaml").exists():
        return "data"
    if not (run / "init").is_dir():
        return "warm-up"
    if (run / "summary.json").exists():
        return "report"
    rows = read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []
    writing = any(p.name.startswith(".") for p in run.rglob("*"))
    return ("after " + rows[-1]["phase"] if rows else "start") + (", writing" if writing else "")


def trials_of(about: str, moments: int) -> tuple[argparse.Namespace, random.Random, Path]:
    """Read a command's `--moments` and `--seed`; what draws, and a directory for the runs."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--moments", type=int, default=moments)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    options = parser.parse_args()
    return options, random.Random(options.seed), Path(tempfile.mkdtemp(prefix="chaos-"))


def main() -> int:
    """Runs the trials and prints a line for each."""
    options, rng, base = trials_of(__doc__, 40)
    alone, seconds = finished_demo()
    print(
        f"seed {options.seed}; a demo takes {seconds:.1f} CPU seconds; runs in {base}", flush=True
    )
    hit: Counter[str] = Counter()
    bad = 0
    for number in range(options.moments):
        # one moment from each stretch of the run, so that no phase is left out
        moments = [(number + rng.random()) / options.moments * seconds]
        if number % 3 == 2:
            moments.append(rng.random() * seconds)
        trial = killed(base / str(number), moments, alone)
        hit.update(trial.phases)
        bad += bool(trial.differences)
        where = "; ".join(trial.phases) or "had ended"
        told = "equal" if not trial.differences else "DIFFERS: " + "; ".join(trial.differences[:3])
        print(f"{number + 1:3}  {moments[0]:6.2f} s  {where:40}  {told}", flush=True)
        if not trial.differences:
            shutil.rmtree(base / str(number))
    print(f"{options.moments} runs, {bad} differ; killed in: {dict(hit)}")
    if not bad:
        shutil.rmtree(base)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
