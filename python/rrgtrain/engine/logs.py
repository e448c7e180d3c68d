"""Metrics of a run: one JSON line a step, the same numbers in TensorBoard, and reading them back.

A row is `{"phase": "rl", "step": 12, "time": <unix seconds>, "reward": 0.41, ...}`. JSON has no
NaN and no infinity, so they stand as the strings "nan", "inf" and "-inf", and `read_metrics`
turns them back into floats.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsFloat

from torch.utils.tensorboard import SummaryWriter

from rrgtrain.engine.rundir import RunDir, atomic_write
from rrgtrain.errors import UserError

_RESERVED = ("phase", "step", "time")
_log = logging.getLogger(__name__)


class RunLog:
    """Writes the metrics of one run; one process only (the run's lock sees to it).

    Every row is a single appending write, so a crash can tear the last line at most; that line
    is cut off when the log is opened again. TensorBoard's files, one folder a phase, lag behind
    by up to ten seconds.
    """

    def __init__(self, run: RunDir) -> None:
        self._path = run.metrics
        self._events = run.events
        self._boards: dict[str, SummaryWriter] = {}
        if self._path.exists():
            _cut_torn_line(self._path)
        self._handle = self._open()

    def write(self, phase: str, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Logs numbers (0-d tensors included) of a step.

        Raises ValueError for a metric called phase, step or time, OSError when the disk is full.
        """
        clash = [name for name in metrics if name in _RESERVED]
        if clash:
            raise ValueError(f"a metric may not be called {clash[0]!r}; rename it")
        values = {name: float(value) for name, value in metrics.items()}
        line = _line({"phase": phase, "step": step, "time": round(time.time(), 3), **values})
        if os.write(self._handle, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        board = self._board(phase)
        for name, value in values.items():
            board.add_scalar(name, value, step)

    def rewind(self, phase: str, step: int) -> int:
        """Drops what was logged after `step` of `phase`, which a resume will log again.

        Cuts at the first row of that phase with a later step; rows before it stay, whatever
        their phase. Returns how many rows went.
        """
        rows = read_metrics(self._path)
        cut = next(
            (i for i, r in enumerate(rows) if r["phase"] == phase and r["step"] > step), len(rows)
        )
        if cut == len(rows):
            return 0
        os.close(self._handle)
        atomic_write(self._path, b"".join(_line(row) for row in rows[:cut]))
        self._handle = self._open()
        for gone in {row["phase"] for row in rows[cut:]}:
            first = min(row["step"] for row in rows[cut:] if row["phase"] == gone)
            if gone in self._boards:
                self._boards.pop(gone).close()
            self._board(gone, purge_step=first)
        return len(rows) - cut

    def close(self) -> None:
        os.close(self._handle)
        for board in self._boards.values():
            board.close()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def _board(self, phase: str, purge_step: int | None = None) -> SummaryWriter:
        if phase not in self._boards:
            self._boards[phase] = SummaryWriter(
                str(self._events / phase), purge_step=purge_step, flush_secs=10
            )
        return self._boards[phase]

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, in the order written.

    A torn last line (the writer was killed, or is writing now) is left out with a warning; a
    broken line anywhere else raises `UserError`, since no crash of ours leaves one.
    """
    rows = []
    lines = Path(path).read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            rows.append(_parse(line))
        except ValueError as error:
            if number == len(lines):
                _log.warning("%s:%d: last line is torn; skipped", path, number)
                continue
            raise UserError(
                f"{path}:{number}: not a metrics row ({error}); delete that line"
            ) from error
    return rows


def _parse(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or any(name not in row for name in _RESERVED):
        raise ValueError("wanted a JSON object with phase, step and time")
    return {k: float(v) if isinstance(v, str) and k != "phase" else v for k, v in row.items()}


def _line(row: Mapping[str, Any]) -> bytes:
    plain = {
        k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()
    }
    return (json.dumps(plain, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _cut_torn_line(path: Path) -> None:
    """Appending to half a row would spoil the next one as well."""
    content = path.read_bytes()
    keep = content.rfind(b"\n") + 1
    if keep < len(content):
        _log.warning("%s: last line is torn (%d bytes); cut off", path, len(content) - keep)
        os.truncate(path, keep)
