"""One job, in this process: as its command would run it, and then its result."""

from __future__ import annotations

import shutil
from typing import Any

from experiments.masking import session_of
from experiments.replicate.jobs import Task, identity
from experiments.replicate.masking import masking_check
from experiments.replicate.measures import Ratios
from experiments.replicate.results import Result, begin, end
from experiments.threads import threads_of_environment
from rrgclinical.common.progress import Bar, progress
from rrgdata.phantom import write_phantom
from rrgreport.summary import commit
from rrgtrain.run.select_studies import select
from rrgtrain.run.stages import Stages
from rrgtrain.schema import Recipe
from rrgtrain.state.rundir import RunDir

MASKED = 16
"""Training studies whose reports the masking check samples."""
Measured = tuple[dict[str, Ratios], dict[str, Any]]


def work(task: Task) -> None:
    """Runs the job, or goes on with it, and leaves its result.

    Raises Stopped, with everything kept, where the process is asked to end.
    """
    begin(task)
    with threads_of_environment():
        measures, facts = _KINDS[task.job.kind](task, task.recipe())
    end(task, Result(identity(task), task.command, commit(), measures, facts))
    # What only an unfinished run needs: a hundred megabytes of optimiser state.
    shutil.rmtree(RunDir(task.directory).resume, ignore_errors=True)


def _data(task: Task, recipe: Recipe) -> Measured:
    config = recipe.data.phantom
    bar: Bar[int] = progress(config.train + config.val + config.test, "phantom")
    with bar:
        write_phantom(config, task.directory, progress=bar.advance)
    return {}, {"train": config.train, "val": config.val, "test": config.test}


def _sft(task: Task, recipe: Recipe) -> Measured:
    resume = bool(RunDir(task.directory).contents())
    with Stages.open(recipe, task.directory, sft=True, verb="sft", resume=resume) as stages:
        trained = stages.sft()
        return {}, {"steps": trained.steps, "metrics": stages.evaluate("test").metrics()}


def _rl(task: Task, recipe: Recipe) -> Measured:
    resume = bool(RunDir(task.directory).contents())
    with Stages.open(recipe, task.directory, rl=True, verb="rl", resume=resume) as stages:
        trained = stages.rl()
        facts = {
            "studies": len(stages.session.chosen),
            "steps": trained.steps,
            "edits": trained.edits,
            "metrics": stages.evaluate("test").metrics(),
        }
    return {}, facts


def _select(task: Task, recipe: Recipe) -> Measured:
    subset = select(recipe, task.directory)
    return {}, {"studies": len(subset.scores), "chosen": len(subset.chosen)}


def _masking(task: Task, recipe: Recipe) -> Measured:
    return masking_check(session_of(recipe, task.directory), MASKED)


_KINDS = {"data": _data, "sft": _sft, "rl": _rl, "select": _select, "masking": _masking}
