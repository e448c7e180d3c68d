"""Metrics to Weights & Biases, where it is installed and a recipe asks for it."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from typing import Any

from rrgtrain.errors import UserError
from rrgtrain.state.rundir import RunDir


def require_wandb() -> Any:
    """The package; UserError where it is not installed."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise UserError(
            "log.wandb names a project, but wandb is not installed; pip install wandb, or leave "
            "log.wandb out"
        ) from error


class WandbLog:
    """One run of a project. A resumed run goes on in the same one: its name is its directory's."""

    def __init__(self, project: str, run: RunDir) -> None:
        wandb = require_wandb()
        place = str(run.path.resolve())
        self._run = wandb.init(
            project=project,
            name=run.path.name,
            id=hashlib.sha256(place.encode()).hexdigest()[:16],
            resume="allow",
            dir=str(run.path),
        )
        self._phases: set[str] = set()

    def write(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """A row under the name of its phase, which has a step axis of its own."""
        if phase not in self._phases:
            self._run.define_metric(f"{phase}/step")
            self._run.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
            self._phases.add(phase)
        self._run.log({f"{phase}/step": step, **{f"{phase}/{k}": v for k, v in values.items()}})

    def close(self) -> None:
        """Sends what is left."""
        self._run.finish()
