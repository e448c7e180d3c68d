"""Name the files of a run, and read its metrics."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Self

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole

RESERVED = ("phase", "step", "time")
"""Keys of a row of metrics that no metric may have."""
_log = logging.getLogger(__name__)


class RunFiles:
    """The paths of one run, for reading."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.events = self.path / "events"
        self.samples = self.path / "samples.jsonl"
        self.predictions = self.path / "predictions.jsonl"
        self.card = self.path / "metrics.json"
        self.checkpoints = self.path / "checkpoints"
        self.resume = self.path / "resume"
        self.failures = self.path / "failures"
        self.steps = self.path / "steps"
        self.summary = self.path / "summary.json"
        self.report = self.path / "report.html"
        self.lock = self.path / "run.lock"

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """An existing run, for reading: takes no lock. Raises `UserError` where there is none."""
        run = cls(path)
        if not run.contents():
            raise UserError(f"no run in {run.path}; name the directory given to --out when it ran")
        return run

    def contents(self) -> list[str]:
        """Names the files that a run has left here; none where no run was."""
        files = [self.config, self.metrics, self.samples, self.predictions]
        files += [self.summary, self.report]
        names = [p.name for p in files if p.exists()]
        for folder in (self.checkpoints, self.resume):
            if folder.is_dir() and any(folder.iterdir()):
                names.append(f"{folder.name}/")
        return names


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, in the order written.

    A torn last line (the writer was killed, or is writing now) is left out with a warning; a
    broken line anywhere else raises `UserError`, since no crash of ours leaves one.
    """
    rows = []
    lines = read_whole(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            rows.append(metrics_row(line))
        except ValueError as error:
            if number == len(lines):
                _log.warning("%s:%d: last line is torn; skipped", path, number)
                continue
            raise UserError(
                f"{path}:{number}: not a metrics row ({error}); delete that line"
            ) from error
    return rows


def metrics_row(line: bytes) -> dict[str, Any]:
    """Parses a line of metrics.jsonl. Raises ValueError for one that is no row."""
    row = json_reader.parse(line, dict)
    if any(name not in row for name in RESERVED):
        raise ValueError("wanted a JSON object with phase, step and time")
    return {k: float(v) if isinstance(v, str) and k != "phase" else v for k, v in row.items()}
