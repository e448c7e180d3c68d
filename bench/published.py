"""Say how old the rows of pages are beside the code that they time.

    python -m bench.published      a line for each room and commit whose code has changed since

Pages show every row with its commit, its day and the number of files of its code that changed
since, read from git's history; without a history that number is unknown.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
# Folders of the code that a whole step times.
STEP_CODE = ("rrgkern", "csrc", "python/rrgpolicy", "python/rrgtrain")
_CODE = (".py", ".h", ".cc", ".cu")
# What sets one measurement apart from another of the same file.
_NAMES = ("room", "case", "bench", "model", "batch", "provider", "members", "pixels", "layers")
_LOSSES = ("policy_loss", "logps")
_MODELS = ("chexbert", "radgraph", "ratescore")
# The code that a row times, by its room or bench, and the command that measures it again.
CODE = {
    "policy_loss": ("policy_loss",),
    "policy_loss_from_logits": _LOSSES,
    "linear_policy_loss": _LOSSES,
    "token_logps": ("logps",),
    "linear_token_logps": ("logps",),
    "logps": ("logps",),
    "card": _LOSSES,
    "update_step": STEP_CODE,
    "clinical": tuple(f"python/rrgclinical/{model}" for model in _MODELS),
}
COMMANDS = {
    "update_step": "make bench ROOM=step",
    "clinical": "make oracle && RRGKERN_ROWS=cpu-clinical RRGKERN_BENCH_FULL=1 .venv/bin/python -m "
    "pytest -q --benchmark-quiet bench/clinical.py",
}
# Their rows are drawn by docs/performance.md.
FILES = ("cpu-peers", "cpu-clinical", "nvidia-h100-80gb-hbm3")


class Age(NamedTuple):
    """Hold a row's commit, day, and count of files changed since (None: unknown)."""

    commit: str
    day: str
    changed: int | None

    def __str__(self) -> str:
        since = "an unknown number of" if self.changed is None else f"{self.changed:,}"
        return f"{self.commit} of {self.day}, {since} files of its code changed since"


def newest(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file, the newest of each measurement."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [*{json.dumps([row.get(name) for name in _NAMES]): row for row in rows}.values()]


def age_of(row: Mapping[str, Any], paths: Sequence[str], root: Path = ROOT) -> Age:
    """Tell how old a row is, by the history of its commit.

    The row of a tree with changes (`-dirty`) belongs to no commit: how much has changed since
    cannot be told.

    Args:
        paths: folders of the code that the row times, relative to `root`.
    """
    commit, dirty, _ = row["commit"].partition("-dirty")
    changed = None if dirty else _files_since(commit, tuple(paths), root)
    return Age(commit[:7] + dirty, row["date"][:10], changed)


@functools.cache
def _files_since(commit: str, paths: tuple[str, ...], root: Path) -> int | None:
    words = ("diff", "--no-renames", "--name-only", "--relative", commit, "--", *paths)
    try:
        listed = subprocess.check_output(
            ["git", "-C", str(root), *words], text=True, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, no repository, or a shallow clone
    return sum(Path(name).suffix in _CODE for name in listed.splitlines())


def name_of(row: dict[str, Any]) -> str:
    """Return the room or bench that a row is of."""
    return str(row.get("room") or row["bench"])


def command_of(row: dict[str, Any]) -> str:
    """Return the command that measures a row again."""
    if row.get("device", "cpu") != "cpu":
        commands = {"update_step": "python bench/gpu_step.py", "card": "python -m bench.card"}
        return commands.get(name_of(row), "make gpu")
    return COMMANDS.get(name_of(row), "make bench ROOM=peers")


def paths_of(name: str) -> list[str]:
    """List the folders of the code that a room's or bench's rows time."""
    folders = [
        part if "/" in part or part in STEP_CODE else f"rrgkern/{part}" for part in CODE[name]
    ]
    return folders + [f"csrc/{part}" for part in CODE[name] if f"rrgkern/{part}" in folders]


def age(row: dict[str, Any], root: Path = ROOT) -> Age:
    """Tell a row's commit, its day, and how many files changed since."""
    return age_of(row, paths_of(name_of(row)), root)


def rows_of_pages() -> list[dict[str, Any]]:
    """Read the rows that docs/performance.md draws."""
    results = ROOT / "bench" / "results"
    return [row for name in FILES for row in newest(results / f"{name}.jsonl")]


if __name__ == "__main__":
    lines = {
        f"{name_of(row)}: {age(row)}; {command_of(row)}": None
        for row in rows_of_pages()
        if age(row).changed != 0
    }
    print("\n".join(lines) or "every row is as new as its code")
    sys.exit(bool(lines))
