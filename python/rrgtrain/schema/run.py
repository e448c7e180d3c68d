"""Declares the settings of checkpoints, of distribution and of logs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS


@dataclass(config=SETTINGS)
class CheckpointSettings:
    """Write what `--resume` goes on from, after `steps` or `seconds`, whichever is first."""

    steps: int = Field(default=50, ge=1)
    """Steps between checkpoints."""
    seconds: float = Field(default=900.0, ge=0.0)
    """Seconds between checkpoints."""
    keep: int = Field(default=2, ge=1)
    """Number of checkpoints that stay."""


@dataclass(config=SETTINGS)
class PlanSettings:
    """Compare a run with the machine before it starts."""

    refuse: bool = False
    """Refuse a run whose weights or checkpoints need more than there is; otherwise warn."""


@dataclass(config=SETTINGS)
class StateSettings:
    """End a run that a signal stops."""

    grace: float = Field(default=25.0, ge=0.0)
    """Seconds from SIGTERM to the kill that follows it (Slurm's KillWait and Kubernetes give 30). A
    run stops at the next border between two phases of a step, and writes a checkpoint if that fits
    at the speed of the last one; else the last one counts."""


@dataclass(config=SETTINGS)
class ScaleSettings:
    """Spread a run over the processes of torchrun, one a GPU."""

    mode: Literal["none", "fsdp2"] = "none"
    """Distribution: a process alone, or weights, gradients and optimiser in parts, one a
    process."""
    shard: int | None = Field(default=None, ge=1)
    """Processes that share one copy of the weights; further such groups hold copies (HSDP). null:
    the processes of a node where there are several nodes, since the network between nodes is slower
    than the links within, else all. More than a node's saves memory; it divides the number of
    processes."""
    timeout: float = Field(default=1800.0, ge=1.0)
    """Seconds until a process that does not answer counts as lost."""


@dataclass(config=SETTINGS)
class LogSettings:
    """Keep records and name trackers."""

    records: int = Field(default=1, ge=0)
    """Steps of reinforcement learning between records, which hold all that a step was made of; 0
    keeps none."""
    thin_after: int | None = Field(default=1000, ge=1)
    """Steps after which records are ten times as far apart, after ten times as many a hundred
    times, and so on, so that a long run does not fill its disk; null never thins."""
    wandb: str | None = None
    """Project of Weights & Biases; null logs to metrics.jsonl and TensorBoard alone."""
    trackers: dict[str, str] = Field(default_factory=dict)
    """Projects at trackers, by name: wandb, mlflow, trackio, swanlab; an entry that a resume adds
    begins there and then."""

    def keeps(self, step: int) -> bool:
        """Tell whether a step is recorded."""
        apart, end = self.records, self.thin_after
        while end is not None and step >= end:
            apart, end = 10 * apart, 10 * end
        return apart > 0 and step % apart == 0

    def kept(self, steps: int) -> int:
        """Count the records of a run of so many steps."""
        count, begin, apart, end = 0, 0, self.records, self.thin_after
        while apart and begin < steps:
            until = steps if end is None else min(end, steps)
            count += -(-until // apart) - -(-begin // apart)
            begin, apart, end = until, 10 * apart, None if end is None else 10 * end
        return count
