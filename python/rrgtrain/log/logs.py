"""Log metrics of a run.

One JSON line a step; TensorBoard and trackers, through `accelerate.tracking`, get the same numbers.

A row is `{"phase": "rl", "step": 12, "time": <unix seconds>, "reward": 0.41, ...}`. JSON has no
NaN and no infinity, so they stand as the strings "nan", "inf" and "-inf", and
`rrgreport.run_files.read_metrics` turns them back into floats.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import logging
import math
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, SupportsFloat

from accelerate import PartialState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, TensorBoardTracker

from rrgclinical.common.files import read_whole
from rrgclinical.common.resolve import nearest
from rrgreport.run_files import RESERVED, metrics_row
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
    "wandb": lambda run, id_: dict(name=run.path.name, id=id_, resume="allow", dir=str(run.path)),
    "mlflow": lambda run, id_: {"run_name": run.path.name, "run_id": _mlflow_run(run)},
    "trackio": lambda run, id_: {"name": f"{run.path.name}-{id_[:8]}", "resume": "allow"},
    "swanlab": lambda run, id_: dict(
        experiment_name=run.path.name, id=id_, resume="allow", logdir=str(run.path / "swanlog")
    ),
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
            near = nearest(name, OPTIONS).strip() or f"known are {', '.join(OPTIONS)}"
            raise UserError(f"{key} names no tracker that is known; {near}")
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


_log = logging.getLogger(__name__)


class RunLog:
    """Writes the metrics of one run; one process only (the run's lock sees to it).

    Every row is a single appending write, so a crash can tear the last line at most; that line
    is cut off when the log is opened again. TensorBoard and the trackers that `settings` names
    get the same rows.
    """

    def __init__(self, run: RunDir, settings: LogSettings | None = None) -> None:
        self._path = run.metrics
        self._trackers = Trackers(run, settings or LogSettings())
        if self._path.exists():
            _cut_torn_line(self._path)
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, phase: str, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Logs numbers (0-d tensors included) of a step.

        Raises ValueError for a metric called phase, step or time, OSError when the disk is full.
        """
        clash = [name for name in metrics if name in RESERVED]
        if clash:
            raise ValueError(f"a metric may not be called {clash[0]!r}; rename it")
        values = {name: float(value) for name, value in metrics.items()}
        line = _line({"phase": phase, "step": step, "time": round(time.time(), 3), **values})
        if os.write(self._handle, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._trackers.write(phase, step, values)

    @property
    def size(self) -> int:
        """Count the bytes of metrics, for `rewind_to`."""
        return os.fstat(self._handle).st_size

    def sync(self) -> None:
        """Flush every row to the disk.

        No checkpoint then knows of rows that a power cut has lost."""
        os.fsync(self._handle)

    def rewind_to(self, size: int) -> int:
        """Drops the rows behind the first `size` bytes, which a resume will log again.

        Returns how many rows went. UserError where the file is shorter: it is not the one that
        the checkpoint was written beside.
        """
        content = read_whole(self._path)
        if len(content) < size:
            raise UserError(
                f"{self._path} has {len(content)} bytes, and had {size} when the checkpoint was "
                "written; put the whole file back"
            )
        if len(content) == size:
            return 0
        rows = []
        for line in content[size:].split(b"\n"):
            with suppress(ValueError):  # a power cut can spoil what no checkpoint knows of
                rows.append(metrics_row(line))
        # Appending goes to the end of the file, wherever that is.
        os.truncate(self._path, size)
        os.fsync(self._handle)
        for gone in {row["phase"] for row in rows}:
            steps = [row["step"] for row in rows if row["phase"] == gone]
            self._trackers.rewind(gone, min(steps), max(steps))
        return len(rows)

    def close(self) -> None:
        os.close(self._handle)
        self._trackers.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class NoLog(RunLog):
    """The log of a rank that writes none: rank 0 does."""

    size = 0

    def _nothing(self, *_: Any) -> None:
        pass

    __init__ = write = sync = close = _nothing  # type: ignore[assignment]

    def rewind_to(self, size: int) -> int:
        return 0


def _line(row: Mapping[str, Any]) -> bytes:
    plain = {
        k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()
    }
    return (json.dumps(plain, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _cut_torn_line(path: Path) -> None:
    """Appending to half a row would spoil the next one as well."""
    content = read_whole(path)
    keep = content.rfind(b"\n") + 1
    if keep < len(content):
        _log.warning("%s: last line is torn (%d bytes); cut off", path, len(content) - keep)
        os.truncate(path, keep)
