"""Every job of a seed: which recipe, from whose checkpoint. One line each."""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rrgdata.phantom.write import VERSION as PHANTOM_VERSION
from rrgreport.summary import versions
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.run.select_studies import SUBSET
from rrgtrain.schema import Recipe

COMMAND = "python -m experiments.replicate"
SMALL = Path(__file__).parent / "small.yaml"
DATA = "data"


@dataclass(frozen=True)
class Job:
    """`kind` is what runs: data, sft, rl, select or masking.

    `start` names the job whose checkpoint it starts from, `subset` the job that drew its training
    studies. `settings` go upon its recipe.
    """

    name: str
    kind: str
    recipe: str = ""
    start: str = ""
    subset: str = ""
    settings: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The jobs of the same seed that come before it."""
        before = () if self.name == DATA else (DATA, self.start, self.subset)
        return tuple(name for name in before if name)


BALANCED = ("data.balanced=60",)

_LISTED = (
    Job(DATA, "data"),
    # Starts, shared by the jobs that name them.
    Job("sft", "sft", "sft"),
    Job("sft_blocks", "sft", "mrg_r1_sft"),
    # EditGRPO, tables 1 and 4.
    Job("grpo", "rl", "grpo", "sft"),
    Job("dr_grpo", "rl", "dr_grpo", "sft"),
    Job("editgrpo", "rl", "editgrpo", "sft"),
    Job("editgrpo_para", "rl", "editgrpo_para", "sft"),
    Job("editgrpo_exact", "rl", "editgrpo_exact", "sft"),
    # MRG-R1, table II.
    Job("mrg_r1", "rl", "mrg_r1", "sft_blocks"),
    Job("mrg_r1_format", "rl", "mrg_r1_format", "sft_blocks"),
    Job("mrg_r1_ce_f1_format", "rl", "mrg_r1_ce_f1_format", "sft_blocks"),
    Job("mrg_r1_ce_f1", "rl", "mrg_r1_ce_f1", "sft"),
    Job("mrg_r1_mccs", "rl", "mrg_r1_mccs", "sft"),
    Job("mrg_r1_nlg", "rl", "mrg_r1_nlg", "sft"),
    # DEER with its gradient weights, on all studies and on those that its draw selects.
    Job("ditpo", "rl", "deer", "sft"),
    Job("ditpo_f1", "rl", "deer_f1", "sft"),
    Job("ditpo_mixed", "rl", "deer_mixed", "sft"),
    Job("masking", "masking", "deer", "sft"),
    Job("select", "select", "deer_f1", "sft"),
    Job("deer", "rl", "deer", "sft", "select"),
    # OraPO.
    Job("orapo", "rl", "orapo", "sft", settings=BALANCED),
    Job("orapo_grpo", "rl", "orapo_grpo", "sft", settings=BALANCED),
    Job("orapo_400", "rl", "orapo_400", "sft", settings=("data.balanced=24",)),
)
JOBS: dict[str, Job] = {job.name: job for job in _LISTED}


def with_needs(names: Iterable[str], jobs: Mapping[str, Job] | None = None) -> list[str]:
    """List jobs and all that they need, in the order of JOBS or another table."""
    table = JOBS if jobs is None else jobs
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
class Task:
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
        """Return the directory that the job writes: a run's directory, or the phantoms."""
        return self.home / self.job.name

    @property
    def result(self) -> Path:
        """There when the job has finished."""
        return self.home / f"{self.job.name}.json"

    @property
    def log(self) -> Path:
        return self.home / f"{self.job.name}.log"

    def other(self, name: str) -> Task:
        """Another job of the same seed."""
        return Task(JOBS[name], self.seed, self.out)

    @property
    def recipe_name(self) -> str:
        """As a command takes it: SMALL upon the job's recipe, relative where that can be."""
        here = Path.cwd()
        small = SMALL.relative_to(here) if SMALL.is_relative_to(here) else SMALL
        return "+".join(filter(None, [self.job.recipe, str(small)]))

    @property
    def conditions(self) -> dict[str, Any]:
        """Name all the result depends on that is no setting of the recipe."""
        return {}

    @property
    def settings(self) -> list[str]:
        """Seeds, data, and what the table adds."""
        chosen = [f"seed={self.seed}", f"policy.seed={self.seed}", f"data.phantom.seed={self.seed}"]
        if self.job.name != DATA:
            chosen.append(f"data.root={self.home / DATA}")
        if self.job.subset:
            chosen.append(f"data.subset={self.home / self.job.subset / SUBSET}")
        return [*chosen, *self.job.settings]

    @property
    def start(self) -> Path | None:
        """The checkpoint it starts from."""
        if not self.job.start:
            return None
        return self.home / self.job.start / "checkpoints" / "sft"

    def recipe(self) -> Recipe:
        """All its settings."""
        recipe = load_config(Recipe, self.recipe_name, self.settings)
        if self.start is not None:
            recipe.policy.path = str(self.start)
        return recipe

    @property
    def command(self) -> str:
        """The command that gives the same numbers."""
        if self.job.kind == "masking":
            words = [*COMMAND.split(), "--job", self.job.name, "--seeds", str(self.seed)]
            words += ["--out", str(self.out)]
        else:
            words = ["rrgtrain", self.job.kind, self.recipe_name]
            words += ["--out", str(self.directory)]
            words += ["--from", str(self.start)] if self.start is not None else []
            words += self.settings
        return shlex.join(words)


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
