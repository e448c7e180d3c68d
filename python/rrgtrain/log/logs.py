"""Log metrics of a run.

One JSON line a step; TensorBoard gets the same numbers.

A row is `{"phase": "rl", "step": 12, "time": <unix seconds>, "reward": 0.41, ...}`. JSON has no
NaN and no infinity, so they stand as the strings "nan", "inf" and "-inf", and
`rrgreport.run_files.read_metrics` turns them back into floats.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, SupportsFloat

from rrgclinical.common.files import read_whole
from rrgreport.run_files import RESERVED, metrics_row
from rrgtrain.errors import UserError
from rrgtrain.log.trackers import Trackers
from rrgtrain.schema import LogSettings
from rrgtrain.state.rundir import RunDir

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
        self._handle = self._open()

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

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class NoLog(RunLog):
    """The log of a rank that writes none: rank 0 does."""

    def __init__(self) -> None:
        pass

    def write(self, phase: str, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        pass

    @property
    def size(self) -> int:
        return 0

    def sync(self) -> None:
        pass

    def rewind_to(self, size: int) -> int:
        return 0

    def close(self) -> None:
        pass


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
