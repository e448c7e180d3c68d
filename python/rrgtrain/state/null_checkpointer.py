"""Keep nothing, in a loop outside a run directory; say what each call is for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

State = dict[str, Any]
Weights = dict[str, torch.Tensor]


class MetricsLog(Protocol):
    """Describe a run's log to checkpoints: size in bytes, sync, a way back."""

    @property
    def size(self) -> int: ...

    def sync(self) -> None: ...

    def rewind_to(self, size: int) -> int: ...


class NullCheckpointer:
    """Keeps nothing: every call does as little as it may."""

    earlier = 0.0
    """Seconds that the run had taken before it was resumed."""
    within: str | None = None
    """The stage whose loop goes on from the checkpoint that was read, until it begins."""
    changes: Sequence[State] = ()
    """What resumes have changed in the settings, see `identity.Change`."""

    def result(self, stage: str) -> State | None:
        """Return the result of a stage that had finished before a resume."""
        return None

    @contextmanager
    def running(self) -> Iterator[None]:
        yield

    def begin(self, stage: str, state: Callable[[], State]) -> State | None:
        """Names the loop that runs now and how its state is asked for.

        Returns the state to go on from, weights and random generators being put back already, or
        None at the stage's beginning. `state` is called before every step: it copies what is
        small and hands out the tensors themselves.
        """
        return None

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """One step: whole or not at all."""
        yield

    @contextmanager
    def interruptible(self, step: int) -> Iterator[None]:
        """Work after `step` steps that leaves the state alone and may be cut off."""
        yield

    def check_stop(self) -> None:
        """End a phase of a step; raise Stopped where a signal asks for it.

        No weight must have changed in this step: it is taken again after a resume.
        """

    def keep(self, step: int, needed: Collection[int]) -> bool:
        """Keep the weights as they are, those after `step` steps, for `restore`.

        needed: the steps whose weights are still wanted; others go. The state of the loop must say
        already what it will say at its next step. False where nothing is kept.
        """
        return False

    def restore(self, step: int) -> None:
        """Put back the weights that `keep` has kept after `step` steps."""
        raise KeyError(step)

    def require(self, step: int) -> None:
        """UserError where `restore` of that step would raise one; for a resume, before its work."""

    def on_failure_dump(self, batch: Callable[[], State]) -> None:
        """Return the batch of this step for a failure dump.

        It is asked for where a number is not finite."""

    def mark_dirty(self) -> None:
        """From here to the end of the step the weights may be half changed."""

    def finish(self, stage: str, result: State) -> None:
        """The stage is done; the policy holds the weights it ends with."""
