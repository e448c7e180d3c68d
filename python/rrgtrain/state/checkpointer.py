"""Checkpoint and resume a training loop.

    with checkpointer.running():                    signals wait for the end of a step
        saved = checkpointer.begin(stage, state)    the state to go on from, or None
        for step in ...:
            with checkpointer.step(step):           first a checkpoint, if due; then the step
                ...
            with checkpointer.interruptible(step):  long work that changes nothing (validation)
                ...
        checkpointer.finish(stage, result)

`null_checkpointer` says what each of them does.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rrgclinical.common.stop import stopping
from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.layout import Shardable
from rrgpolicy.ranks.rng import random_states, set_random_states
from rrgpolicy.ranks.sharding import load_weights
from rrgtrain.errors import NotFinite, Stopped, UserError
from rrgtrain.schema import CheckpointSettings
from rrgtrain.state.null_checkpointer import MetricsLog, NullCheckpointer, State
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.store import Checkpoint, CheckpointStore, load_checkpoint
from rrgtrain.state.tree import PerRank
from rrgtrain.state.write import first_line, keep_batch, keep_trace


class Checkpointer(NullCheckpointer):
    """Keeps the state of a run in the checkpoints of its directory.

    A checkpoint holds all that the run knows between two steps, also where a step has failed: the
    trainable weights, the random generators, the results of finished stages, the state of the loop
    that runs, and how long the metrics were.
    """

    def __init__(
        self,
        run: RunDir,
        policy: Shardable,
        log: MetricsLog,
        verb: str,
        settings: CheckpointSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._policy, self._log = run, policy, log
        self._verb, self._settings, self._clock = verb, settings, clock
        self._store = CheckpointStore(run.resume, settings.keep)
        self._began, self.earlier = clock(), 0.0
        # What each checkpoint says of the run's settings, see `identity.settled`.
        self.settings: dict[str, str] = {}
        # The settings of its steps as config.yaml shows them, see `identity.changes_of`.
        self.values: dict[str, str] = {}
        # The description of the checkpoint that a resume goes on from.
        self.resumed_from: dict[str, Any] = {}
        self._done: dict[str, State] = {}
        self._found: Checkpoint | None = None
        self._stage, self._tagged = "", list[str]()
        self._state: Callable[[], State] = dict
        self._before: State = {}
        # the number of that state, and of the one whose write was begun last
        self._taken, self._begun = 0, 0
        self._steps, self._written = 0, clock()
        # steps of this stage that the last checkpoint has
        self._batch: Callable[[], State] | None = None
        self._clean = True
        self._whole: tuple[int, bool] | None = None
        """Between two guarded parts: steps done, and whether `_before` has fewer."""

    def resume(self) -> str:
        """Reads the newest checkpoint, takes the log back; says where it goes on."""
        found = self._store.newest()
        if found is None:
            self._log.rewind_to(0)
            return "from the beginning: no checkpoint was written yet"
        self.resumed_from = found.about
        state = found.read("metrics", "seconds", "done", "stage", "step")
        self._log.rewind_to(state["metrics"])
        self.earlier = state["seconds"]
        self._done = state["done"]
        if state["stage"]:
            self._found, self.within = found, state["stage"]
            return f"at step {state['step']} of {state['stage']}"
        self._put_back(found)
        return f"after {list(self._done)[-1]}"

    def result(self, stage: str) -> State | None:
        return self._done.get(stage)

    @contextmanager
    def running(self) -> Iterator[None]:
        with stopping.deferred():
            try:
                yield
            except Exception as error:
                ended = self._between(error)
                self._finish_writing(ended)
                raise ended from ended.__cause__
        stopping.check()  # for one that came after the last step
        ranks.barrier()

    def _between(self, error: Exception) -> Exception:
        """What the run ends with; one between two steps ends it as one within a step does."""
        if self._whole is None or isinstance(error, _NoCheckpoint):
            return error
        try:
            with self._guarded(self._whole[0], take=self._whole[1]):
                raise error
        except Exception as ended:
            return ended

    def begin(self, stage: str, state: Callable[[], State]) -> State | None:
        self._whole = None
        self._stage, self._state, self._tagged = stage, state, []
        self._steps, self._written = 0, self._clock()
        found, self._found, self.within = self._found, None, None
        if found is None:
            return None
        self._put_back(found)
        self._tagged = found.about["tagged"]
        return found.read("loop", like=self._like())["loop"]

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        with stopping.deferred(), self._guarded(step):
            stopping.check()
            due = self._clock() - self._written >= self._settings.seconds
            due = due or self._steps >= self._settings.steps
            votes = ranks.gather((due, self._store.failed))
            if any(failed for _, failed in votes):
                self.wait()
            if votes[0][0]:
                self._begin(self._label(step))
            yield
        self._steps, self._whole = self._steps + 1, (step + 1, True)

    @contextmanager
    def interruptible(self, step: int) -> Iterator[None]:
        with stopping.deferred(), self._guarded(step), stopping.interruptible():
            yield
        self._whole = step, False

    def check_stop(self) -> None:
        # The other ranks hear of an error at their next exchange, and none of them comes from here
        # to a change of weights without one.
        if self._store.failed:
            raise _NotWritten
        stopping.check()

    def keep(self, step: int, needed: Collection[int]) -> bool:
        self._tagged = [self._label(step) for step in needed]
        with stopping.deferred():
            self._take(step)
            self._begin(self._label(step))
        return True

    def restore(self, step: int) -> None:
        self.wait()
        with ranks.propagate_errors():
            weights = self._kept(step).read("weights", like=self._like())["weights"]
            ranks.barrier()
        self._whole = None
        load_weights(self._policy, weights)

    def require(self, step: int) -> None:
        self.wait()
        self._kept(step)

    def _kept(self, step: int) -> Checkpoint:
        path = self._store.labelled(self._label(step))
        try:
            return load_checkpoint(path)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"the checkpoint {path} holds the best weights and is broken ({error}); restore it "
                "from a copy, or start a new run"
            ) from error

    def on_failure_dump(self, batch: Callable[[], State]) -> None:
        self._batch = batch

    def mark_dirty(self) -> None:
        self._clean = False

    def finish(self, stage: str, result: State) -> None:
        self._whole = None
        with stopping.deferred():
            self._done[stage] = result
            self._stage, self._state, self._tagged = "", dict, []
            self._take(0)
            self._save(_safe(stage))

    @contextmanager
    def _guarded(self, step: int, *, take: bool = True) -> Iterator[None]:
        if take:
            self._take(step)
        self._batch, self._clean, self._whole = None, True, None
        try:
            try:
                with ranks.propagate_errors():
                    yield
                    # what one rank meets at the end would reach the others behind it
                    ranks.barrier()
            except _NotWritten:
                self.wait()
        except _NoCheckpoint:
            raise
        except Exception as error:
            raise self._failed(step, error) from error

    def _take(self, step: int) -> None:
        """Hold the state of this moment; tensors are not copied."""
        weights = {n: p for n, p in self._policy.model.named_parameters() if p.requires_grad}
        self._taken += 1
        self._before = {
            "verb": self._verb,
            "stage": self._stage,
            "step": step,
            "done": dict(self._done),
            "metrics": self._log.size,
            "seconds": self.earlier + self._clock() - self._began,
            "random": PerRank(random_states()),
            "weights": weights,
            "loop": self._state(),
        }

    def _put_back(self, found: Checkpoint) -> None:
        state = found.read("weights", "random", like=self._like())
        load_weights(self._policy, state["weights"])
        random = state["random"]
        # a rank that is new keeps what it was given
        if ranks.rank() < len(random):
            set_random_states(random[ranks.rank()])

    def _like(self) -> torch.Tensor | None:
        """A sharded weight, by which checkpoints are read; None where weights are whole."""
        parameters = self._policy.model.parameters()
        sharded = (p for p in parameters if hasattr(p, "device_mesh"))
        return next(sharded, None) if ranks.size() > 1 else None

    def _label(self, step: int) -> str:
        return f"{_safe(self._stage)}-{step}"

    def _save(self, label: str) -> None:
        """Write the state from before this step; all ranks together."""
        self._begin(label)
        self.wait()

    def _begin(self, label: str) -> None:
        """Begin to write the state from before this step; nothing where that was begun already."""
        if self._begun == self._taken:
            return
        self.wait()
        about = {name: self._before[name] for name in ("verb", "stage", "step")}
        about |= {"settings": self.settings, "values": self.values, "changes": [*self.changes]}
        with self._naming_last_checkpoint():
            self._log.sync()
            self._store.begin(label, self._before, about, self._tagged)
        self._begun = self._taken
        self._steps, self._written = 0, self._clock()

    def wait(self) -> None:
        """Return when the checkpoint that was begun is whole; _NoCheckpoint where it cannot be."""
        with self._naming_last_checkpoint():
            self._store.wait()

    @contextmanager
    def _naming_last_checkpoint(self) -> Iterator[None]:
        try:
            with ranks.propagate_errors():
                yield
        except OSError as error:
            names = self._store.names() if ranks.is_main() else []
            last = f"the last one is {names[-1]}" if names else "there is none before it"
            raise _NoCheckpoint(
                f"no checkpoint could be written to {self._store.directory}: {error.strerror}; "
                f"{last}; make room"
            ) from error

    def _finish_writing(self, error: Exception) -> None:
        """Let the checkpoint be finished that was begun before `error` ended the run."""
        try:
            # where a rank is lost its end is an error, which comes at once
            alone = ranks.size() == 1
            self._store.wait_alone(10.0 if ranks.broken() else None if alone else ranks.timeout())
        except Exception as other:
            error.add_note(f"the checkpoint that was being written failed too: {other}")

    def _failed(self, step: int, error: Exception) -> Exception:
        """What the run ends with, once the state before the step is safe."""
        rank = ranks.error_rank(error)
        place = f"{self._stage}, step {step}" + (f", rank {rank}" if rank is not None else "")
        if isinstance(error, Stopped):
            line = f"{error} after {step} steps of {self._stage}"
        elif isinstance(error, NotFinite):
            line = f"{place}: {error}{self._kept_batch(step, error)}"
        elif isinstance(error, UserError):
            line = f"{place}: {error}"
        elif isinstance(error, OSError) and error.strerror:
            line = f"{place}: {error.strerror} ({error.filename or self._run.path})"
        else:
            trace = keep_trace(self._run.failures / f"{self._label(step)}.txt", error)
            line = f"{place}: {first_line(error)}{trace}"
        if not self._all_before(step):
            return Stopped(f"{line}; the step was half done, so the last checkpoint counts")
        try:
            self.wait()
            self._save(self._label(step))
        except _NoCheckpoint as full:
            return Stopped(f"{line}; {full}")
        if isinstance(error, NotFinite):
            section = "sft" if self._stage == "sft" else "rl"
            return NotFinite(
                f"{line}; with other settings it may go on: rrgtrain {self._verb} --resume "
                f"{shlex.quote(str(self._run.path))} {section}.lr=..."
            )
        return _stopped(line, error)

    def _all_before(self, step: int) -> bool:
        """Whether every rank has the state from before this step still."""
        if ranks.broken():
            return False
        return all(clean and at == step for clean, at in ranks.gather((self._clean, step)))

    def _kept_batch(self, step: int, error: Exception) -> str:
        batch = ranks.gather(self._batch and self._batch())[ranks.error_rank(error) or 0]
        if batch is None:
            return ""
        state = {"stage": self._stage, "step": step, "weights": self._before["weights"]}
        return keep_batch(self._run.failures / self._label(step), {**state, "batch": batch})


def require_verb(run: RunDir, verb: str) -> None:
    """UserError where the run's checkpoints are those of another command."""
    begun = CheckpointStore(run.resume, 1).about().get("verb", verb)
    if begun != verb:
        command = f"rrgtrain {begun} --resume {shlex.quote(str(run.path))}"
        raise UserError(f"{run.path} was begun by another command; use: {command}")


class _NotWritten(Stopped):
    """A rank has seen that the checkpoint begun has failed; the threads of all know why."""


class _NoCheckpoint(Stopped):
    """The checkpoint itself could not be written: there is nothing more to try."""


def _stopped(line: str, error: Exception) -> Stopped:
    stopped = Stopped(line)
    stopped.status = getattr(error, "status", stopped.status)
    return stopped


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", ".", name)
