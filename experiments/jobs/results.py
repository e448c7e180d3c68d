"""Write and read the JSON file that a finished job leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.jobs.job import Task, identity, told_changes
from rrgclinical.common.files import atomic_write
from rrgtrain.errors import UserError


@dataclass(frozen=True)
class Result:
    """`identity` is what it depends on, `facts` what a reader may ask: steps, seconds, sizes.

    `commit` is the code's.
    """

    identity: dict[str, Any]
    command: str
    commit: str | None
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        atomic_write(path, json.dumps(vars(self)) + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """Reads the file. UserError where it is something else."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content.pop("measures", None)  # older results have it, empty
            return cls(**content)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is no result of a job ({error}); delete it, and its job runs again"
            ) from error


def finished(task: Task) -> bool:
    """Tell whether the job has left its result, of whatever settings."""
    return task.result.is_file()


def stale(task: Task) -> str | None:
    """Tell why a job's files are of other settings or versions; None if not.

    The job may have finished or have only begun."""
    if finished(task):
        before = Result.load(task.result).identity
    elif _begun(task).is_file():
        before = json.loads(_begun(task).read_text(encoding="utf-8"))
    else:
        return None
    why = told_changes(before, identity(task))
    return why and f"{task.label}: {why}"


def begin(task: Task) -> None:
    """Notes, before anything is computed, what the job's result will depend on."""
    task.home.mkdir(parents=True, exist_ok=True)
    if not _begun(task).is_file():
        atomic_write(_begun(task), json.dumps(identity(task)) + "\n")


def end(task: Task, result: Result) -> None:
    """Leaves the result, which says that the job has finished."""
    result.save(task.result)
    _begun(task).unlink(missing_ok=True)


def _begun(task: Task) -> Path:
    return task.home / f"{task.job.name}.begun.json"
