"""Estimate a job's CPU seconds from rates that were measured, and what fits the budget.

Rates are CPU seconds of one thread with the policy of 5.2 million parameters, measured in the
development of this room while other work filled the machine's two cores; README.md says on what. A
GPU has no rate here: none was measured.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from experiments.iu_evidence.arms import DATA, FIXED, SELECT, SFT, Hypothesis
from experiments.iu_evidence.tasks import FoldTask, tasks_of
from rrgtrain.schema import Recipe

STARTUP = 12.0
AN_SFT_REPORT = 0.065
A_SAMPLED_REPORT = 0.037
A_TRAINED_REPORT = 0.053
A_GREEDY_REPORT = 0.036
A_DISTILLED_STEP = 0.08
A_FIXED_REPORT = 60.0  # a guess: it was not timed
VALIDATION, TEST, TRAIN = 189, 473, 1703
"""Studies of a fold."""


@functools.cache
def seconds_of(task: FoldTask) -> float:
    """The estimate for a whole job, at the full size."""
    if task.job.kind == DATA:
        return STARTUP
    if task.job.kind == FIXED:
        return STARTUP + A_FIXED_REPORT
    recipe = task.recipe()
    if task.job.kind == SELECT:
        return STARTUP + A_SAMPLED_REPORT * TRAIN * recipe.select.samples
    own = _sft(recipe) if task.job.kind == SFT else _rl(recipe)
    return STARTUP + own + A_GREEDY_REPORT * TEST


def _sft(recipe: Recipe) -> float:
    settings = recipe.sft
    validated = A_GREEDY_REPORT * VALIDATION * (settings.steps / settings.eval_every)
    return AN_SFT_REPORT * settings.batch * settings.steps + validated


def _rl(recipe: Recipe) -> float:
    rl, sampled = recipe.rl, recipe.rl.group
    if rl.algorithm == "editgrpo":
        sampled = rl.group - 1 if recipe.edit.level == "paragraph" else rl.group // 2
    trained = (rl.group + (rl.algorithm == "orapo")) * rl.epochs
    step = rl.prompts * (A_SAMPLED_REPORT * sampled + A_TRAINED_REPORT * trained)
    weighs = rl.algorithm == "ditpo" and recipe.token_weights.kind != "tfidf"
    learned = A_DISTILLED_STEP * recipe.token_weights.distil_steps if weighs else 0.0
    validations = 1 + rl.steps / rl.eval_every
    return learned + rl.steps * step + A_GREEDY_REPORT * VALIDATION * validations


def wall_seconds(estimates: Sequence[float], workers: int) -> float:
    """With so many workers, as if no job ever waited for another."""
    return max([sum(estimates) / workers, *estimates]) if estimates else 0.0


def clock(seconds: float) -> str:
    """2 h 05 min, 14 min or 40 s."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def planned(
    claims: Sequence[Hypothesis], out: Path, budget: float
) -> list[tuple[Hypothesis, float, bool]]:
    """Tell of each claim the seconds that it adds, and whether it fits.

    A claim that does not fit is left out, and the next one is tried.
    """
    paid: set[FoldTask] = set()
    spent, rows = 0.0, []
    for claim in claims:
        tasks = {t for f in claim.folds for t in tasks_of(claim.jobs(), f, out, quick=False)}
        added = sum(seconds_of(task) for task in tasks - paid)
        fits = spent + added <= budget
        if fits:
            paid |= tasks
            spent += added
        rows.append((claim, added, fits))
    return rows
