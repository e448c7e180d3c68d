"""Send metrics to experiment trackers, through `accelerate.tracking`."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from accelerate import PartialState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, TensorBoardTracker

from rrgclinical.common.resolve import nearest
from rrgtrain.errors import Stopped, UserError
from rrgtrain.schema import LogSettings
from rrgtrain.state.rundir import RunDir

MLFLOW = "mlflow_run.txt"
"""The file of a run that keeps what MLflow calls it."""


def _mlflow_run(run: RunDir) -> str | None:
    file = run.path / MLFLOW
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


# What each tracker is told of a run beside its project. A resumed run goes on in the same one, by
# its id or name.
OPTIONS: dict[str, Callable[[RunDir, str], dict[str, Any]]] = {
    "wandb": lambda run, id_: {
        "name": run.path.name,
        "id": id_,
        "resume": "allow",
        "dir": str(run.path),
    },
    "mlflow": lambda run, id_: {"run_name": run.path.name, "run_id": _mlflow_run(run)},
    "trackio": lambda run, id_: {"name": f"{run.path.name}-{id_[:8]}", "resume": "allow"},
    "swanlab": lambda run, id_: {
        "experiment_name": run.path.name,
        "id": id_,
        "resume": "allow",
        "logdir": str(run.path / "swanlog"),
    },
}


def projects(settings: LogSettings) -> dict[str, str]:
    """The project at each tracker that a recipe names."""
    wandb = {} if settings.wandb is None else {"wandb": settings.wandb}
    return {**settings.trackers, **wandb}


def require_trackers(settings: LogSettings) -> None:
    """UserError for a tracker that is not known, or whose package is not installed."""
    for name in projects(settings):
        key = "log.wandb" if name == "wandb" and settings.wandb else f"log.trackers.{name}"
        if name not in OPTIONS:
            told = nearest(name, OPTIONS).strip() or f"known are {', '.join(OPTIONS)}"
            raise UserError(f"{key} names no tracker that is known; {told}")
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UserError(
                f"{key} names a project, but {name} is not installed; pip install {name}, or "
                f"leave {key} out"
            ) from error


BOARD = "TensorBoard"
FAILURES = 3
"""Failures in a row after which a tracker is left alone: each may have been a time limit's wait."""


class Trackers:
    """TensorBoard below the run, one folder a phase, and the trackers that a recipe names.

    One that fails in a run, or at the start of a resume, is told of once, and left alone after
    `FAILURES` in a row; the run goes on: metrics.jsonl has it all.
    """

    def __init__(self, run: RunDir, settings: LogSettings) -> None:
        require_trackers(settings)
        _alone()
        self._events = str(run.events)
        self._boards: dict[str, TensorBoardTracker] = {}
        self._trackers: dict[str, GeneralTracker] = {}
        self._phases: set[str] = set()
        self._sent: dict[str, int] = {}
        self._warned: set[str] = set()
        self._failures: Counter[str] = Counter()
        place = hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()
        for name, project in projects(settings).items():
            id_ = place[:21] if name == "swanlab" else place[:16]
            try:
                tracker = LOGGER_TYPE_TO_CLASS[name](project, **OPTIONS[name](run, id_))
                tracker.start()
                if name == "mlflow":
                    (run.path / MLFLOW).write_text(tracker.tracker.info.run_id, encoding="utf-8")
            except Stopped:
                raise
            except (Exception, SystemExit) as error:
                if run.metrics.exists():  # a resume, as by night after a time limit
                    _tell(name, f"cannot start ({type(error).__name__}) and is not asked")
                    continue
                self.close()
                # its text could hold a key
                raise UserError(
                    f"{name} cannot start ({type(error).__name__}); log in to it, or leave it out "
                    "of the recipe's log section"
                ) from None
            self._trackers[name] = tracker

    def write(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Logs the numbers of a step under the name of its phase."""
        self._ask(BOARD, phase, step, lambda: self._board(phase).log(dict(values), step=step))
        rows = {f"{phase}/{name}": value for name, value in values.items()}
        for name, tracker in self._trackers.items():
            if name != "wandb" and step <= self._sent.get(phase, -1):
                continue  # it has the step, and cannot go back
            self._ask(name, phase, step, partial(self._log, name, tracker, phase, step, rows))
        self._phases.add(phase)

    def rewind(self, phase: str, step: int, last: int) -> None:
        """Drop what TensorBoard has of the phase from `step` on, which will come again.

        The others keep what they have, up to `last`, and are not sent it again. W&B is: what it
        had not sent yet when a run was killed is lost.
        """
        self._sent[phase] = last

        def begin() -> None:
            if phase in self._boards:
                self._boards.pop(phase).finish()
            self._board(phase, purge_step=step)

        self._ask(BOARD, phase, step, begin)

    def _ask(self, name: str, phase: str, step: int, log: Callable[[], object]) -> None:
        """Let a tracker log; one that fails is told of once."""
        if self._failures[name] == FAILURES:
            return
        try:
            log()
            self._failures[name] = 0
        except Stopped:
            raise
        except (Exception, SystemExit) as error:
            self._failures[name] += 1
            if name not in self._warned:
                kind = type(error).__name__
                _tell(name, f"did not take the metrics of {phase}, step {step} ({kind})")
            self._warned.add(name)
            if self._failures[name] == FAILURES:
                _tell(name, f"failed {FAILURES} times in a row and is not asked again in this run")

    def close(self) -> None:
        """Sends what is left."""
        boards = [(BOARD, board) for board in self._boards.values()]
        for name, tracker in (*boards, *self._trackers.items()):
            try:
                tracker.finish()
            except Stopped:
                raise
            except (Exception, SystemExit) as error:
                if name not in self._warned:
                    _tell(name, f"did not end well ({type(error).__name__})")
                self._warned.add(name)

    def _board(self, phase: str, purge_step: int | None = None) -> TensorBoardTracker:
        if phase not in self._boards:
            board = TensorBoardTracker(phase, self._events, purge_step=purge_step)
            board.start()
            self._boards[phase] = board
        return self._boards[phase]

    def _log(
        self, name: str, tracker: Any, phase: str, step: int, rows: Mapping[str, float]
    ) -> None:
        if name != "wandb":
            # a name of theirs has no other characters
            tracker.log({re.sub(r"[^\w/ -]", "_", k): v for k, v in rows.items()}, step=step)
            return
        # its own step only grows: every phase has an axis of its own
        axis = f"{phase}/step"
        if phase not in self._phases:
            tracker.tracker.define_metric(axis)
            tracker.tracker.define_metric(f"{phase}/*", step_metric=axis)
        tracker.log({axis: step, **rows})


def _tell(name: str, how: str) -> None:
    """Warn of a tracker without its error's text, which could hold a key."""
    warnings.warn(f"{name} {how}; metrics.jsonl has all rows", stacklevel=5)


def _alone() -> None:
    """Tell accelerate that this process is one alone, since only rank 0 has a log.

    Its trackers ask `PartialState`, which would else make a world of what torchrun has set, and
    set the number of threads.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    world = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        PartialState(cpu=True)
    finally:
        os.environ.update(world)
