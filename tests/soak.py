"""A run of a thousand tiny steps that must not grow, and one on eight ranks.

    python -m tests.soak --steps 1000

Resident memory, open files and processor seconds a step are read at the end of each tenth of the
run; the first tenth warms up. On eight ranks PyTorch compares each collective's kind and shapes
over the ranks (gloo, TORCH_DISTRIBUTED_DEBUG=DETAIL). Exits 1 where a bound does not hold.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from tests.rrgtrain.common import OF_PHANTOM, SMALL_POLICY
from tests.rrgtrain.runs import ends, on_ranks, start_command, started

TENTHS = 10
# Of the last tenths against the first: MiB of resident memory, and times the seconds of a step.
GROWTH, SLOWER = 32, 1.25
ON_RANKS = [
    *("rl", "--from", "tiny", "--out", "run", *OF_PHANTOM, *SMALL_POLICY, "scale.mode=fsdp2"),
    *("rl.steps=2", "rl.prompts=8", "rl.group=4", "rl.max_new_tokens=10", "rl.eval_every=2"),
    *("eval.max_new_tokens=10", "eval.bootstrap=20", "checkpoint.steps=1"),
]


@dataclass(frozen=True)
class Look:
    """A process after `step` steps: MiB of resident memory, open files, processor seconds."""

    step: int
    mib: float
    files: int
    seconds: float


def look(pid: int, step: int) -> Look:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Look(step, mib, files, time.clock_gettime(~pid << 3 | 2))


def looks_at(steps: int, home: Path) -> list[Look]:
    """Train `steps` steps in a process of its own, and look at it after each tenth of them."""
    words = started(f"rl.steps={steps}", "rl.eval_every=100", "checkpoint.steps=50")
    home.mkdir()
    process, log, looks = start_command(tuple(words), home), home / "run" / "metrics.jsonl", []
    while process.is_alive():
        rows = log.read_text().count('"phase": "editgrpo"') if log.exists() else 0
        if rows >= (len(looks) + 1) * steps // TENTHS:
            looks.append(look(process.pid, rows))
        process.join(0.05)
    if process.exitcode != 0:
        raise SystemExit((home / "err.txt").read_text())
    return looks


def grown(looks: list[Look]) -> list[str]:
    """Say in what the last three tenths are above the second to the fourth."""
    paces = [(b.seconds - a.seconds) / (b.step - a.step) for a, b in pairwise(looks)]
    early, late = looks[1:4], looks[-3:]
    bounds = {
        "MiB resident": (median(x.mib for x in early) + GROWTH, median(x.mib for x in late)),
        "open files": (max(x.files for x in early) + 1, median(x.files for x in late)),
        "processor seconds a step": (median(paces[1:4]) * SLOWER, median(paces[-3:])),
    }
    told = [f"{name} {now:.4g}, bound {bound:.4g}" for name, (bound, now) in bounds.items()]
    print("\n".join(told), flush=True)
    return [line for line, (bound, now) in zip(told, bounds.values(), strict=True) if now > bound]


def main(words: list[str] | None = None) -> int:
    """Run both, and print what was read and what is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args(words)
    base = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    wrong = grown(looks_at(options.steps, base / "long"))
    done = on_ranks(*ON_RANKS, cwd=base / "ranks", count=8)
    wrong += [ends(done)] if any(d.status for d in done) else []
    print("\n".join(wrong) or f"{options.steps} steps, and 8 ranks: within all bounds")
    if not wrong:
        shutil.rmtree(base)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
