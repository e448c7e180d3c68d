"""Describe jobs: their recipe, from whose checkpoint they start, what their results depend on."""

from __future__ import annotations

import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rrgdata.phantom.write import VERSION as PHANTOM_VERSION
from rrgreport.summary import versions
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe

DATA = "data"


@dataclass(frozen=True)
class Job:
    """Describe what runs: a row of a table of jobs.

    `kind` is data, sft or rl, or another that its table runs. `start` names the job whose
    checkpoint it starts from. `settings` go upon its recipe.
    """

    name: str
    kind: str
    recipe: str = ""
    start: str = ""
    settings: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The jobs of the same seed that come before it."""
        before = () if self.name == DATA else (DATA, self.start)
        return tuple(name for name in before if name)


def with_needs(names: Iterable[str], table: Mapping[str, Job]) -> list[str]:
    """List jobs and all that they need, in the table's order.

    Raises UserError for a job that the table has not.
    """
    wanted: set[str] = set()

    def add(name: str) -> None:
        if name not in table:
            raise UserError(f"--job {name} is unknown; jobs are: {', '.join(table)}")
        wanted.add(name)
        for before in table[name].needs:
            add(before)

    for name in names:
        add(name)
    return [name for name in table if name in wanted]


@dataclass(frozen=True)
class Task(ABC):
    """Hold a job of one seed below the directory `out`."""

    job: Job
    seed: int
    out: Path

    @property
    def label(self) -> str:
        return f"{self.job.name} of seed {self.seed}"

    @property
    def home(self) -> Path:
        """Return the directory of this seed's jobs."""
        return self.out / f"seed{self.seed}"

    @property
    def directory(self) -> Path:
        """Return the directory that the job writes: a run's directory, or the data."""
        return self.home / self.job.name

    @property
    def result(self) -> Path:
        """There when the job has finished."""
        return self.home / f"{self.job.name}.json"

    @property
    def log(self) -> Path:
        return self.home / f"{self.job.name}.log"

    @property
    def conditions(self) -> dict[str, Any]:
        """Name all the result depends on that is no setting of the recipe."""
        return {}

    @abstractmethod
    def other(self, name: str) -> Task:
        """Another job of the same seed."""

    @property
    @abstractmethod
    def recipe_name(self) -> str:
        """Recipes one upon the other, as a command takes them."""

    @property
    @abstractmethod
    def settings(self) -> list[str]:
        """Seed, data, and what the table adds."""

    @property
    @abstractmethod
    def start(self) -> Path | None:
        """The checkpoint it starts from."""

    @property
    @abstractmethod
    def command(self) -> str:
        """The command that gives the same numbers."""

    def recipe(self) -> Recipe:
        """All its settings."""
        recipe = load_config(Recipe, self.recipe_name, self.settings)
        if self.start is not None:
            recipe.policy.path = str(self.start)
        return recipe


@functools.cache
def _identity(task: Task) -> str:
    needs = {name: digest(identity(task.other(name))) for name in task.job.needs}
    own = {**settings_and_versions(task.recipe()), **task.conditions}
    return json.dumps({**own, "needs": needs}, sort_keys=True)


def settings_and_versions(recipe: Recipe) -> dict[str, Any]:
    """Collect the settings without paths and the versions, as JSON gives them back."""
    settings = asdict(recipe)
    for section, key in (("data", "root"), ("data", "subset"), ("policy", "path")):
        settings[section].pop(key)
    installed = {k: v for k, v in versions().items() if k not in ("python", "triton")}
    found = {"recipe": settings, "versions": {**installed, "phantom": PHANTOM_VERSION}}
    return json.loads(json.dumps(found))


def identity(task: Task) -> dict[str, Any]:
    """Collect what the result depends on: settings without paths, versions, the jobs before it."""
    return json.loads(_identity(task))


def digest(identity: dict[str, Any]) -> str:
    """16 hex digits of what a result depends on."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List the differences of two identities, as `rl.lr 0.0002 -> 0.0001`."""
    old, new = dict(_flat(before, "")), dict(_flat(now, ""))
    return [
        f"{key.removeprefix('recipe.')} {old.get(key, 'unset')} -> {new.get(key, 'unset')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def told_changes(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Tell the first differences of two identities; None where there is none."""
    if digest(before) == digest(now):
        return None
    listed = changes(before, now)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return f"{', '.join(listed[:3])}{more}"


def _flat(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
