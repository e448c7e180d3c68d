"""Declares the settings of checkpoints, of distribution and of logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rrgclinical.common.fields import at_least, one_of


@dataclass
class CheckpointSettings:
    """Write what `--resume` goes on from, after `steps` or `seconds`, whichever is first."""

    steps: int = at_least(50, 1)
    """Steps between checkpoints."""
    seconds: float = at_least(900.0, 0.0)
    """Seconds between checkpoints."""
    keep: int = at_least(2, 1)
    """Number of checkpoints that stay."""


@dataclass
class PlanSettings:
    """Compare a run with the machine before it starts."""

    refuse: bool = False
    """Refuse a run that needs more than there is by the estimate of `rrgtrain plan`; otherwise
    warn."""


@dataclass
class StateSettings:
    """End a run that a signal stops."""

    grace: float = at_least(25.0, 0.0)
    """Seconds from SIGTERM to the kill that follows it (Slurm's KillWait and Kubernetes give 30). A
    run stops at the next border between two phases of a step, and writes a checkpoint if that fits
    at the speed of the last one; else the last one counts."""


@dataclass
class ScaleSettings:
    """Spread a run over the processes of torchrun, one a GPU."""

    mode: str = one_of("none", "fsdp2")
    """Distribution: a process alone, or weights, gradients and optimiser in parts, one a
    process."""
    shard: int | None = at_least(None, 1)
    """Processes that share one copy of the weights; further such groups hold copies (HSDP). null:
    the processes of a node where there are several nodes, since the network between nodes is slower
    than the links within, else all. More than a node's saves memory; it divides the number of
    processes."""
    timeout: float = at_least(1800.0, 1.0)
    """Seconds until a process that does not answer counts as lost."""


@dataclass
class LogSettings:
    """Keep records and name trackers."""

    records: int = at_least(1, 0)
    """Steps of reinforcement learning between records, which hold all that a step was made of; 0
    keeps none."""
    thin_after: int | None = at_least(1000, 1)
    """Steps after which records are ten times as far apart, after ten times as many a hundred
    times, and so on, so that a long run does not fill its disk; null never thins."""
    wandb: str | None = None
    """Project of Weights & Biases; null logs to metrics.jsonl and TensorBoard alone."""
    trackers: dict[str, str] = field(default_factory=dict)
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
