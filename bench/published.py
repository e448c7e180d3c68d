"""Say how old the rows of pages are beside the code that they time.

    python -m bench.published      a line for each room and commit whose code has changed since

Pages show every row with its commit, its day and the number of files of its code that changed
since, read from git's history; without a history that number is unknown.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rrgtrain.plan import STEP_CODE, Age, age_of, newest

ROOT = Path(__file__).parents[1]
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
