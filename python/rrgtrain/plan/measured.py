"""Read the rows of the benches, and say how old they are beside their code."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
# An installed wheel carries the rows of GPUs inside the package.
_FOLDERS = (Path(__file__).resolve().parents[1] / "measured", ROOT / "bench" / "results")
STEP_CODE = ("rrgkern", "csrc", "python/rrgpolicy", "python/rrgtrain")
"""Folders of the code that a whole step times."""
_CODE = (".py", ".h", ".cc", ".cu")
# What sets one measurement apart from another of the same file.
_NAMES = ("room", "case", "bench", "model", "batch", "provider", "members", "pixels", "layers")


class Age(NamedTuple):
    """Hold a row's commit and day, and how many files of its code changed since, None unknown."""

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
    """Tell how old a row is, by git where `root` has the history of the row's commit.

    The row of a tree with changes (`-dirty`) belongs to no commit: how much has changed since
    cannot be told.

    Args:
        paths: folders of the code that the row times, relative to `root`.
    """
    commit, dirty, _ = row["commit"].partition("-dirty")
    changed = None if dirty else _changed(commit, tuple(paths), root)
    return Age(commit[:7] + dirty, row["date"][:10], changed)


@functools.cache
def _changed(commit: str, paths: tuple[str, ...], root: Path) -> int | None:
    words = ("diff", "--no-renames", "--name-only", "--relative", commit, "--", *paths)
    try:
        listed = subprocess.check_output(
            ["git", "-C", str(root), *words], text=True, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, no repository, or a shallow clone
    return sum(Path(name).suffix in _CODE for name in listed.splitlines())


def step_line(gpu: str) -> str:
    """Say in a line what a step of rl took on a GPU of this name, by the newest whole row."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), ROOT)
    rows = [
        row
        for path in sorted(folder.glob(f"nvidia-{gpu.partition('-')[0]}-*.jsonl"))
        for row in newest(path)
        if row.get("room") == "update_step"
    ]
    if not rows:
        return f"Seconds: no row of a step on a {gpu} yet; python bench/gpu_step.py writes one."
    row = max(rows, key=lambda row: (row["layers"], row["date"]))
    return (
        f"Seconds of a step of {row['provider']}, {row['case']} weights, {row['prompts']} prompts, "
        f"one {row['device']}:\nsampling {row['seconds/rollout']:.1f}, update "
        f"{row['seconds/update']:.1f}, peak {row['peak_mib'] / 1024:.1f} GiB "
        f"({age_of(row, STEP_CODE)})"
    )
