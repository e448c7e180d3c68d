"""Results with planted numbers, and jobs that need no process."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.replicate.claims import CLAIMS, Claim
from experiments.replicate.jobs import JOBS, Task, identity
from experiments.replicate.measures import Ratios, mean_of
from experiments.replicate.results import Result, end


def claim(name: str) -> Claim:
    return next(c for c in CLAIMS if c.name == name)


def planted(mean: float, seed: int, units: int = 400, spread: float = 0.1) -> Ratios:
    """A measure whose studies scatter around `mean`, the same scatter whatever the mean."""
    return mean_of(mean + spread * np.random.default_rng(seed).standard_normal(units))


def result(task: Task, identity: dict | None = None, **means: float) -> Result:
    measures = {name: planted(mean, task.seed) for name, mean in means.items()}
    facts = {"steps": 80, "prompts": 16}
    return Result(identity or {}, task.command, "abc", measures, facts)


def task(name: str, seed: int, out: Path, quick: bool = True) -> Task:
    return Task(JOBS[name], seed, out, quick)


def leave(one: Task, *, known: bool = False) -> Task:
    """A finished job; `known` says also of what settings."""
    one.home.mkdir(parents=True, exist_ok=True)
    end(one, result(one, identity(one) if known else None, micro_f1=0.5))
    return one
