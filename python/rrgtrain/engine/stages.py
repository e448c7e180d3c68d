"""The stages of a run, each leaving its checkpoint and its rows in one run directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from rrgtrain.algorithms import Algorithm, Group, build_algorithm
from rrgtrain.config import dump_config
from rrgtrain.engine.evaluate import Evaluation
from rrgtrain.engine.logs import RunLog
from rrgtrain.engine.rl import RlResult, run_rl
from rrgtrain.engine.rundir import RunDir
from rrgtrain.engine.session import Session, open_session
from rrgtrain.engine.sft import SftResult, run_sft
from rrgtrain.schema import Recipe

Record = Callable[[int, list[Group], torch.Tensor], None]


@dataclass
class Stages:
    """A session bound to a run directory; a context manager that closes the log and the lock."""

    session: Session
    run: RunDir
    log: RunLog
    algorithm: Algorithm | None = None

    @classmethod
    def open(cls, recipe: Recipe, out: Path, *, sft: bool = False, rl: bool = False) -> Stages:
        """Takes `out`, opens data and policy, and only then writes the first file of the run.

        `sft` and `rl` say which stages will follow, so that what they cannot do with this recipe
        or this data is refused here. Bad input leaves nothing that a second try would stumble
        over.
        """
        algorithm = build_algorithm(recipe) if rl else None
        run = RunDir.create(out)
        try:
            session = open_session(recipe, out, sft=sft, algorithm=algorithm)
        except BaseException:
            run.close()
            raise
        dump_config(recipe, run.config)
        return cls(session, run, RunLog(run), algorithm)

    def sft(self, *, until_plateau: bool = True) -> SftResult:
        session = self.session
        return run_sft(
            session.policy,
            session.prompts,
            session.split("train"),
            session.recipe,
            session.validator(),
            self.run.checkpoints / "sft",
            self.log,
            until_plateau=until_plateau,
        )

    def rl(self, record: Record | None = None) -> RlResult:
        session = self.session
        return run_rl(
            session.policy,
            session.prompts,
            session.split("train"),
            session.recipe,
            self.algorithm or build_algorithm(session.recipe),
            session.rewards,
            session.validator(),
            self.run.checkpoints / session.recipe.rl.algorithm.replace(":", "."),
            self.log,
            record=record,
        )

    def evaluate(self, name: str) -> Evaluation:
        """The policy as it stands on the recipe's held-out split."""
        settings = self.session.recipe.eval
        return self.session.evaluate(
            settings.split, limit=settings.limit, description=f"evaluate {name}"
        )

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *exc: object) -> None:
        self.log.close()
        self.run.close()
