"""Plant faults in a copy of the tree, one at a time, and see the tests that are named die.

    python -m tests.planted [--jobs 2] [WORD ...]

The list is `planted.yaml`: a file, a piece that stands in it once, what takes its place, and the
test that is red with it. With words, only the faults whose file or test holds one. First the tests
run on the copy as it is, where they must be green. Ends with 1 where a fault lives on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import yaml

from tests.house.tree import files

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".yaml")
RED = 1  # pytest's status where tests have failed; 2 to 5 are no verdict


class Fault(NamedTuple):
    """A piece of a file, from the root, and the tests that notice when it is another."""

    file: str
    old: str
    new: str
    test: str

    @property
    def name(self) -> str:
        """Return the file and the piece that is planted."""
        return f"{self.file}: {self.old.strip()[:60]!r} -> {self.new.strip()[:40]!r}"


def listed() -> list[Fault]:
    """Read the list."""
    return [Fault(**entry) for entry in yaml.safe_load(LIST.read_text(encoding="utf-8"))]


def copied(home: Path) -> Path:
    """Copy the tree, with the compiled extension, into a new folder of `home`."""
    tree = Path(tempfile.mkdtemp(dir=home))
    for path in [*files(ROOT), *ROOT.glob("rrgkern/_C*.so")]:
        place = tree / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    return tree


def run(tree: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy on the copy's packages."""
    # without bytecode: a planted file may have the size and the second of the one before
    env = {
        **os.environ,
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'python'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "RRGKERN_GATES": "1",
        "RRG_DATA": os.environ.get("RRG_DATA", str(ROOT.parent / "shared" / "data")),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)


def plant(tree: Path, fault: Fault) -> tuple[int, str]:
    """Plant a fault, run its tests, and put the file back; return pytest's status and last line."""
    path = tree / fault.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        done = run(tree, fault.test)
    finally:
        path.write_text(text, encoding="utf-8")
    return done.returncode, (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1]


def main() -> int:
    """Plant every fault that is asked for; print the verdict of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="faults planted at a time")
    parser.add_argument("words", nargs="*", metavar="WORD")
    asked = parser.parse_args()
    faults = [
        fault
        for fault in listed()
        if not asked.words or any(word in fault.file + fault.test for word in asked.words)
    ]
    with tempfile.TemporaryDirectory() as home:
        trees: SimpleQueue[Path] = SimpleQueue()
        for _ in range(asked.jobs):
            trees.put(copied(Path(home)))

        def verdict(fault: Fault) -> tuple[int, str]:
            tree = trees.get()
            try:
                return plant(tree, fault)
            finally:
                trees.put(tree)

        tree = trees.get()
        sound = run(tree, "-n", str(asked.jobs), *sorted({fault.test for fault in faults}))
        trees.put(tree)
        if sound.returncode:
            print(sound.stdout[-3000:], "the tests are not green on the tree as it is", sep="\n")
            return 1
        alive = 0
        with ThreadPoolExecutor(asked.jobs) as pool:
            for fault, (status, line) in zip(faults, pool.map(verdict, faults), strict=True):
                alive += status != RED
                print("dies " if status == RED else "LIVES", fault.name, "|", line, flush=True)
    print(f"{len(faults) - alive} of {len(faults)} faults die")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
