"""One job, in this process: as its command would run it, and then its result."""

from __future__ import annotations

import os
import shutil
from typing import Any

import numpy as np
import torch

from experiments.replicate.jobs import Task, identity
from experiments.replicate.masking import masking_check
from experiments.replicate.measures import (
    Ratios,
    draw_measures,
    mean_of,
    of_evaluation,
    rare_columns,
)
from experiments.replicate.results import Result, begin, end
from experiments.replicate.zero_rate import ZeroRecorder
from rrgclinical.common.progress import Bar, progress
from rrgdata.phantom import write_phantom
from rrgreport.provenance import commit
from rrgtrain.run.select_studies import RECORDS, random_draw, select
from rrgtrain.run.session import session_of
from rrgtrain.run.stages import Stages
from rrgtrain.schema import Recipe
from rrgtrain.select.records import Records
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.evaluate import Evaluation

Measured = tuple[dict[str, Ratios], dict[str, Any]]


def work(task: Task) -> None:
    """Runs the job, or goes on with it, and leaves its result.

    Raises Stopped, with everything kept, where the process is asked to end.
    """
    begin(task)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
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
        evaluation = stages.evaluate("test")
        measures = _measures(stages, evaluation)
        facts = {
            "steps": trained.steps,
            "best_step": trained.best_step,
            "seconds": trained.seconds,
        }
    return measures, facts


def _rl(task: Task, recipe: Recipe) -> Measured:
    resume = bool(RunDir(task.directory).contents())
    zeros = ZeroRecorder()
    with Stages.open(recipe, task.directory, rl=True, verb="rl", resume=resume) as stages:
        trained = stages.rl(zeros)
        evaluation = stages.evaluate("test")
        measures = {
            **_measures(stages, evaluation),
            "zero_rate": mean_of(zeros.shares),
            "zero_groups": mean_of(zeros.whole_groups),
        }
        facts = {
            "studies": len(stages.session.chosen),
            "steps": trained.steps,
            "best_step": trained.best_step,
            "prompts": recipe.rl.prompts,
            "group": recipe.rl.group,
            "rollouts": trained.rollouts,
            "zero_variance": trained.zero_variance,
            "seconds": trained.seconds,
        }
    return measures, facts


def _measures(stages: Stages, evaluation: Evaluation) -> dict[str, Ratios]:
    session = stages.session
    # Of the cases, which every job of a seed shares, not of the studies that one of them chose.
    cases = [study.labels for study in session.split("train") if study.labels is not None]
    rare = rare_columns(np.asarray(cases, dtype=np.int8).reshape(-1, 14))
    return of_evaluation(evaluation, session.rewards.scored_text(evaluation.reports), rare)


def _select(task: Task, recipe: Recipe) -> Measured:
    subset = select(recipe, task.directory)
    names = list(subset.scores)
    rewards = Records(task.directory / RECORDS).rewards(names)
    if rewards is None:
        raise ValueError("phantoms without reports; wanted something to be rewarded by")
    chosen = set(subset.chosen)
    draws = {
        "all": np.arange(len(names)),
        "random": random_draw(len(names), len(chosen), recipe.seed),
        "selected": np.array([i for i, name in enumerate(names) if name in chosen]),
    }
    return draw_measures(rewards, draws), {"studies": len(names), "chosen": len(chosen)}


def _masking(task: Task, recipe: Recipe) -> Measured:
    session = session_of(recipe, task.directory)
    return masking_check(session)


_KINDS = {"data": _data, "sft": _sft, "rl": _rl, "select": _select, "masking": _masking}
