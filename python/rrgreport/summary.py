"""Summarise a finished run: the numbers of its table and their origin."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write
from rrgclinical.common.shown import hidden
from rrgclinical.metrics.registry import metric_of
from rrgclinical.scorecard import Scorecard


@dataclass(frozen=True)
class Metric:
    """A value with the ends of its interval, where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass
class System:
    """One row of the table: a model, a phase or a baseline.

    `metrics` by the names of the registry (`rrgclinical.metrics`); `per_finding` is F1 by
    observation, `positives` the studies that have it in the truth; `edits` counts edits by rule
    letter; `seconds` is wall time and `phases` where it went.
    """

    metrics: dict[str, Metric] = field(default_factory=dict)
    per_finding: dict[str, float] = field(default_factory=dict)
    positives: dict[str, int] = field(default_factory=dict)
    edits: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    phases: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_card(cls, card: Scorecard, name: str) -> System:
        """Take a system's main metrics, and its F1 of each finding, from a scorecard."""
        metrics = {
            key: Metric(value.value, value.low, value.high)
            for key, value in card.groups[0].systems[name].items()
            if metric_of(key).main
        }
        f1 = {finding.name: finding.systems[name]["f1"].value for finding in card.findings}
        return cls(metrics, f1, {finding.name: finding.positives for finding in card.findings})


@dataclass
class RunSummary:
    """Systems in the order of the story they tell, the last one being the result.

    `notes` are sentences a reader must not miss, such as which data and labeller these are.
    `changes` are the settings that resumes have changed, see `state.identity.Change`.
    """

    title: str
    systems: dict[str, System] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    command: str = ""
    finished: str = ""
    seconds: float | None = None
    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)

    def save(self, path: str | Path) -> None:
        """JSON in which NaN and infinities stand as strings."""
        text = json.dumps(_plain(dataclasses.asdict(self)), indent=2, ensure_ascii=False)
        atomic_write(path, hidden(text) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> RunSummary:
        """Raises `UserError` when the file is absent or not a summary."""
        try:
            return TypeAdapter(cls).validate_python(json_reader.read(path, dict))
        except FileNotFoundError as error:
            raise UserError(_missing(Path(path))) from error
        except ValueError as error:
            line = " ".join(str(error).partition("[type=")[0].split())  # of pydantic's the first
            raise UserError(f"{path} is not a run's summary ({line}); run it again") from error


def _missing(path: Path) -> str:
    """Say why a directory has no summary: it never was a run, goes on, or has lost it."""
    page = path.with_name("report.html")
    of_a_run = [path.with_name(name) for name in ("config.yaml", "metrics.jsonl")]
    if page.with_name("metrics.json").is_file() and not any(map(Path.exists, of_a_run)):
        return f"{page.parent} holds scored files; their page is {page}"
    if page.is_file():
        return (
            f"{path} is gone, though the run in {page.parent} has ended; put it back from a copy, "
            "or evaluate a checkpoint of the run anew by `rrgtrain eval`"
        )
    return f"{path} does not exist; let the run finish first"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


_PACKAGES = ("rrgkern", "torch", "triton", "transformers", "numpy")


def commit() -> str | None:
    """Read the short commit of this checkout, with "+" where files differ.

    None outside a checkout of this project.
    """
    here = Path(__file__).resolve().parent
    described = _git(here, "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+")
    tracked = _git(here, "ls-files", "--error-unmatch", Path(__file__).name)
    return described if described and tracked else None


def versions() -> dict[str, str]:
    """Installed versions by package, Python's included; packages not installed are left out."""
    versions_of = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions_of[name] = metadata.version(name)
    return versions_of


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        # No git, or no checkout: both mean that the commit is not known.
        return None
    return done.stdout.strip()
