"""Run the jobs of the table, and keep what the alarm reads of each validation."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.alarm.series import DIGITS, columns_of, packed
from experiments.jobs.job import DATA, Job, Task, identity
from experiments.jobs.results import Result, begin, end
from experiments.threads import threads_of_environment
from rrgclinical.severity import AXIS, alarm_lines
from rrgdata.phantom import write_phantom
from rrgreport.run_files import read_metrics
from rrgreport.summary import commit
from rrgtrain.run.stages import Stages
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.evaluate import AxesWatch

SMALL = Path(__file__).with_name("small.yaml")
GAMES = ("template", "repetition", "hedging")
RECIPES = ("editgrpo", "dr_grpo", "dr_grpo_severity")
"""The demo's own algorithm and reward, Dr. GRPO with that reward, and with `severity`."""
EARLY = "_early"
"""Ends the name of what starts at half of the fine-tuning, where there is more to learn."""
HEALTHY = (*RECIPES, *(f"{name}{EARLY}" for name in RECIPES))
PASSED = "validated.jsonl"
"""Beneath a run's directory: a line for each validation, again where a resume validates again."""


def _paid(game: str) -> str:
    return f"reward.terms={{experiments.alarm.games:{game}: 1.0}}"


JOBS = {
    job.name: job
    for job in (
        Job(DATA, "data"),
        Job("sft", "sft"),
        Job(f"sft{EARLY}", "sft", settings=("sft.steps=75", "sft.eval_every=75")),
        *(Job(name, "rl", "dr_grpo", "sft", settings=(_paid(name),)) for name in GAMES),
        *(Job(name, "rl", name, "sft") for name in RECIPES),
        *(Job(f"{name}{EARLY}", "rl", name, f"sft{EARLY}") for name in RECIPES),
    )
}


@dataclass(frozen=True)
class AlarmTask(Task):
    """A job of this table."""

    def other(self, name: str) -> AlarmTask:
        """Another job of the same seed."""
        return AlarmTask(JOBS[name], self.seed, self.out)

    @property
    def recipe_name(self) -> str:
        """The demo, the job's algorithm and reward, and their small size on top."""
        here = Path.cwd()
        small = SMALL.relative_to(here) if SMALL.is_relative_to(here) else SMALL
        return "+".join(filter(None, ["demo", self.job.recipe, str(small)]))

    @property
    def settings(self) -> list[str]:
        """Seeds, data, and what the table adds."""
        chosen = [f"seed={self.seed}", f"policy.seed={self.seed}", f"data.phantom.seed={self.seed}"]
        if self.job.name != DATA:
            chosen.append(f"data.root={self.home / DATA}")
        return [*chosen, *self.job.settings]

    @property
    def start(self) -> Path | None:
        """The checkpoint it starts from."""
        if not self.job.start:
            return None
        return self.home / self.job.start / "checkpoints" / "sft"

    @property
    def command(self) -> str:
        """The command that gives the same numbers."""
        words = ["rrgtrain", self.job.kind, self.recipe_name, "--out", str(self.directory)]
        words += ["--from", str(self.start)] if self.start is not None else []
        return shlex.join([*words, *self.settings])


def work(task: AlarmTask) -> None:
    """Runs the job, or goes on with it, and leaves its result.

    Raises Stopped, with everything kept, where the process is asked to end.
    """
    begin(task)
    recipe, kind = task.recipe(), task.job.kind
    resume = bool(RunDir(task.directory).contents())
    facts: dict[str, Any] = {}
    with threads_of_environment():
        if kind == "data":
            write_phantom(recipe.data.phantom, task.directory)
        else:
            stages = Stages.open(
                recipe, task.directory, sft=kind == "sft", rl=kind == "rl", verb=kind, resume=resume
            )
            with stages:
                if kind == "sft":
                    facts = {"steps": stages.sft().steps}
                else:
                    facts = _watched(stages)
    end(task, Result(identity(task), task.command, commit(), facts))
    shutil.rmtree(RunDir(task.directory).resume, ignore_errors=True)


def _watched(stages: Stages) -> dict[str, Any]:
    """Train, and give of each validation what was logged and what the alarm read."""
    passed, make = stages.run.path / PASSED, stages.session.validator

    def validator(watch: AxesWatch | None = None) -> Callable[[], dict[str, float]]:
        assert watch is not None
        validate = make(watch)

        def validated() -> dict[str, float]:
            row = validate()
            last = watch.state_dict()["past"][-1]
            with passed.open("a") as lines:
                entry = {"of": _key(row), "columns": columns_of(last["reward"], last["counts"])}
                lines.write(json.dumps(entry) + "\n")
            return row

        return validated

    # the loop asks it for what it validates with
    stages.session.validator = validator  # type: ignore[method-assign]
    steps = stages.rl().steps
    rows = [row for row in read_metrics(stages.run.metrics) if f"{AXIS}repeated" in row]
    with passed.open() as lines:
        columns = {entry["of"]: entry["columns"] for entry in map(json.loads, lines)}
    return {
        "steps": steps,
        "logged": [{"step": row["step"] + 1, **_seen(row)} for row in rows],
        "lines": alarm_lines(rows),
        "columns": packed([columns[_key(row)] for row in rows]),
    }


def _seen(row: Mapping[str, Any]) -> dict[str, float]:
    own = {k: float(v) for k, v in row.items() if k == "reward" or k.startswith((AXIS, "alarm/"))}
    return {name: round(value, DIGITS) for name, value in own.items()}


def _key(row: Mapping[str, Any]) -> str:
    return json.dumps(_seen(row), sort_keys=True)
