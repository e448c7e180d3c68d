"""Meet a full disk, a file limit or kill -9 in each write of a checkpoint, then resume.

    python -m tests.chaos_disk --writes 14

The fault comes in the thread that writes, at the first, second, ... checkpoint of a demo: the disk
refuses with ENOSPC, or a file may grow no further (RLIMIT_FSIZE), or the process is killed. A
refused write has to end the run with status 75 and one line about it, and each run, resumed, in
the same weights, metrics, samples and summary as one that was left alone. Exits 1 where one does
not, and keeps its directory.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.rrgtrain.runs import TINY_RUN, At, command, differences, finished_demo

WRITE = "torch.distributed.checkpoint.filesystem:FileSystemWriter.write_data"
FAULTS = {"full disk": 75, "file limit": 75, "SIGKILL": -9}
LINE = "no checkpoint could be written to run/resume: "


def refused(home: Path, number: int, fault: str, alone: Path) -> list[str] | None:
    """Say what a demo with `fault` in its `number`-th write does wrong.

    None where it had ended before.
    """
    home.mkdir(parents=True)
    done = command("demo", "--out", "run", *TINY_RUN, cwd=home, at=At(WRITE, number, fault))
    if done.status == 0:
        return None
    if done.status != FAULTS[fault]:
        return [f"status {done.status}, wanted {FAULTS[fault]}: {done.err[-300:]}"]
    left = [p.name for p in (home / "run" / "resume").glob(".*")]
    if fault != "SIGKILL" and (LINE not in done.last or left):
        return [f"{done.last}; left behind: {left}"]
    done = command("demo", "--resume", "run", cwd=home)
    if done.status != 0:
        return [f"status {done.status} of the resumed run: {done.err[-300:]}"]
    return differences(alone, home / "run")


def main(words: list[str] | None = None) -> int:
    """Run the trials and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writes", type=int, default=14)
    options = parser.parse_args(words)
    base, bad = Path(tempfile.mkdtemp(prefix="chaos-disk-")), 0
    alone, _ = finished_demo()
    for number in range(1, options.writes + 1):
        for fault in FAULTS:
            home = base / f"{number}-{fault.replace(' ', '-')}"
            wrong = refused(home, number, fault, alone)
            if wrong is None:
                said = "the demo had ended"
            else:
                said = "equal" if not wrong else "DIFFERS: " + "; ".join(wrong[:3])
            print(f"write {number:3}  {fault:10}  {said}", flush=True)
            bad += bool(wrong)
            if not wrong:
                shutil.rmtree(home)
    print(f"{options.writes} writes, {bad} of {options.writes * len(FAULTS)} runs are wrong")
    if not bad:
        shutil.rmtree(base)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
