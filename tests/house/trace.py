"""Count the lines of functions that a run enters, before its first step and in it."""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.house.plan import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
FIRST_STEP = ("python/rrgtrain/train/rl.py", "_train_step")
STAGES = ("before the first step", "from it to the end")


class Entered:
    """Collects the code of every function that is entered, in two stages."""

    def __init__(self) -> None:
        self.codes: tuple[set[CodeType], set[CodeType]] = (set(), set())
        self.stage = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if self.stage == 0 and code.co_name == FIRST_STEP[1]:
            self.stage = int(code.co_filename == str(ROOT / FIRST_STEP[0]))
        self.codes[self.stage].add(code)


@contextlib.contextmanager
def profiled(entered: Entered) -> Iterator[None]:
    """Let `entered` see the calls of this thread and of those that it starts."""
    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def rows(entered: Entered) -> Iterator[tuple[str, int, int, dict[str, int]]]:
    """Yield each stage, its lines of whole functions, its files, and the lines of each package.

    A function that lies within another counts once.
    """
    for stage, codes in zip(STAGES, entered.codes, strict=True):
        lines = defaultdict(set)
        for code in codes:
            path = Path(code.co_filename)
            # the body of a class or module is no function
            if package_of(path) and code.co_flags & inspect.CO_OPTIMIZED:
                numbers = [line for _, _, line in code.co_lines() if line]
                first, last = code.co_firstlineno, max(numbers, default=code.co_firstlineno)
                lines[path].update(range(first, last + 1))
        packages: dict[str, int] = defaultdict(int)
        for path, of in lines.items():
            packages[package_of(path)] += len(of)
        ordered = dict(sorted(packages.items(), key=lambda each: -each[1]))
        yield stage, sum(packages.values()), len(lines), ordered


def package_of(path: Path) -> str:
    """Return the package of a file of this tree, "" for any other file."""
    for base in (ROOT / "python", ROOT):
        if path.is_relative_to(base) and (top := path.relative_to(base).parts[0]) in PACKAGES:
            return top
    return ""


def traced_run() -> Entered:
    """Run `rrgtrain rl` at the size of a test, from the demo's fine-tuned policy."""
    from rrgtrain.cli import main
    from tests.rrgtrain.runs import started

    words, entered = started(), Entered()
    quiet = contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home), quiet, profiled(entered):
        status = main(words)
    assert status == 0, status
    return entered


def report() -> Iterator[str]:
    """Write a line a stage: lines of all packages, their files, and the lines of each."""
    for stage, total, files, packages in rows(traced_run()):
        parts = ", ".join(f"{package} {count:,}" for package, count in packages.items())
        yield f"{stage}: {total:,} lines in {files} files ({parts})"
