"""Estimate a job's time on one core from the measured time of its parts.

The rates are CPU seconds of one thread with the tiny policy; another machine has
others, so the progress bar corrects them by what has finished.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from experiments.replicate.jobs import Task
from rrgdata.phantom import PhantomConfig
from rrgtrain.schema import Recipe

# CPU seconds of one thread while other work ran beside it; see README.md.
STARTUP = 8.0
A_PHANTOM = 0.016
A_WARMUP_IMAGE = 0.0073
AN_SFT_REPORT = 0.0155
AN_SFT_REPORT_OF_A_FROZEN_TOWER = 0.0095
A_STEP = 0.3
A_SAMPLED_REPORT = 0.004
A_TRAINED_REPORT = 0.0085
A_GREEDY_REPORT = 0.012
A_DISTILLED_STEP = 0.08
# The longest reports of a block template over those of a plain one.
BLOCKS = 1.5


@functools.cache
def seconds_of(task: Task) -> float:
    """The estimate for a whole job."""
    recipe = task.recipe()
    return STARTUP + _KINDS[task.job.kind](recipe)


def wall_seconds(estimates: Sequence[float], workers: int) -> float:
    """With so many workers, as if no job ever waited for another."""
    return max([sum(estimates) / workers, *estimates]) if estimates else 0.0


def clock(seconds: float) -> str:
    """2 h 05 min, 14 min or 40 s."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _longer(recipe: Recipe) -> float:
    return BLOCKS if recipe.reward.blocks != "none" else 1.0


def _sizes(recipe: Recipe) -> PhantomConfig:
    return recipe.data.phantom


def _data(recipe: Recipe) -> float:
    sizes = _sizes(recipe)
    return A_PHANTOM * (sizes.train + sizes.val + sizes.test)


def _evaluations(recipe: Recipe, validations: float) -> float:
    sizes = _sizes(recipe)
    return A_GREEDY_REPORT * (validations * sizes.val + sizes.test) * _longer(recipe)


def _sft(recipe: Recipe) -> float:
    steps = recipe.sft.steps
    warm = A_WARMUP_IMAGE * recipe.policy.warmup_steps * recipe.sft.batch
    a_report = AN_SFT_REPORT_OF_A_FROZEN_TOWER if recipe.policy.freeze_vision else AN_SFT_REPORT
    train = a_report * steps * recipe.sft.batch * _longer(recipe)
    return warm + train + _evaluations(recipe, steps / recipe.sft.eval_every)


def _rl(recipe: Recipe) -> float:
    rl = recipe.rl
    edited = rl.algorithm == "editgrpo" and recipe.edit.level == "sentence"
    sampled = rl.group // 2 if edited else rl.group
    trained = rl.group + ("orapo" in rl.algorithm)
    step = A_STEP + rl.prompts * (A_SAMPLED_REPORT * sampled + A_TRAINED_REPORT * trained)
    distilled = "ditpo" in rl.algorithm and recipe.token_weights.kind != "tfidf"
    learned = A_DISTILLED_STEP * recipe.token_weights.distil_steps if distilled else 0.0
    return (
        learned + rl.steps * step * _longer(recipe) + _evaluations(recipe, rl.steps / rl.eval_every)
    )


def _select(recipe: Recipe) -> float:
    train = _sizes(recipe).train
    studies = train if recipe.data.limit is None else min(train, recipe.data.limit)
    return A_SAMPLED_REPORT * studies * recipe.select.samples


def _masking(recipe: Recipe) -> float:
    from experiments.replicate.masking import STUDIES

    reports = STUDIES * recipe.rl.group
    learned = A_DISTILLED_STEP * recipe.token_weights.distil_steps
    return learned + reports * (A_SAMPLED_REPORT + A_TRAINED_REPORT)


_KINDS = {"data": _data, "sft": _sft, "rl": _rl, "select": _select, "masking": _masking}
