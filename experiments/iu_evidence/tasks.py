"""A job of one fold: its recipe, its files, and what its result depends on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.iu_evidence.arms import ARMS, DATA, FIRST, FIXED, Arm
from experiments.iu_evidence.data import CUTS, FOLDS, QUICK_STUDIES, SEED, VALIDATION
from experiments.iu_evidence.start import Size
from experiments.jobs.job import Task

COMMAND = "python -m experiments.iu_evidence"
RECIPES = Path(__file__).parent / "recipes"
SIZES = (
    *("data.balanced", "rl.prompts", "rl.steps", "rl.eval_every"),
    *("sft.steps", "sft.eval_every"),
)
"""Settings in which `--quick` keeps its own."""


@dataclass(frozen=True)
class FoldTask(Task):
    """Hold a job of one fold, its number where other tasks have the seed.

    `quick` reads the first QUICK_STUDIES studies, with steps that claim nothing.
    """

    job: Arm
    quick: bool = False

    @property
    def label(self) -> str:
        return f"{self.job.name} of fold {self.seed}"

    @property
    def home(self) -> Path:
        """Return the directory of this fold's jobs."""
        return self.out / f"fold{self.seed}"

    def other(self, name: str) -> FoldTask:
        """Another job of the same fold."""
        return FoldTask(ARMS[name], self.seed, self.out, self.quick)

    @property
    def size(self) -> Size:
        """Sizes of the policy of random weights that the fold's first job builds."""
        small = Size(width=64, layers=1, vocabulary=500, seed=self.seed)
        return small if self.quick else Size(seed=self.seed)

    @property
    def recipe_name(self) -> str:
        """Recipes one upon the other, as a command takes them."""
        shared = [str(RECIPES / f"{name}.yaml") for name in ("common", "quick")]
        return "+".join([self.job.recipe or "sft", *shared[: 1 + self.quick]])

    @property
    def settings(self) -> list[str]:
        """Seed, data, and what the table adds; a small size keeps its own."""
        chosen = [f"seed={self.seed}", f"data.root={self.home / self.job.data}", *self.job.settings]
        if self.quick:
            chosen = [word for word in chosen if not word.startswith(SIZES)]
        return chosen

    @property
    def start(self) -> Path | None:
        """The checkpoint it starts from; a fold's first training begins at random weights."""
        if self.job.kind in (DATA, FIXED):
            return None
        if not self.job.start:
            return self.home / FIRST / "start"
        return self.home / self.job.start / "checkpoints" / "sft"

    @property
    def conditions(self) -> dict[str, Any]:
        """The draw of the data, which no recipe holds."""
        division = {"folds": FOLDS, "seed": SEED, "cuts": list(CUTS), "validation": VALIDATION}
        evidence = {**division, **asdict(self.job.evidence), "fold": self.seed}
        evidence["studies"] = QUICK_STUDIES if self.quick else "all"
        return {"evidence": evidence, "policy": asdict(self.size)} if self.job.kind == DATA else {}

    @property
    def command(self) -> str:
        """The command that gives the same numbers."""
        words = [*COMMAND.split(), "--job", self.job.name, "--folds", str(self.seed)]
        return shlex.join([*words, *(["--quick"] if self.quick else [])])


def tasks_of(names: Sequence[str], fold: int, out: Path, *, quick: bool) -> list[FoldTask]:
    """The tasks of these jobs in a fold."""
    return [FoldTask(ARMS[name], fold, out, quick) for name in names]
