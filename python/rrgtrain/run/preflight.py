"""Fail early: check data and settings before training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rrgdata.arrange import longest_text
from rrgdata.study import Study
from rrgtrain.algorithms import Algorithm
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rollout import require_engine
from rrgtrain.schema import Recipe
from rrgtrain.train.batch_order import batch_indices
from rrgtrain.train.evaluate import metric_names, require_metric
from rrgtrain.train.optim import require_8bit
from rrgtrain.train.rl_run import require_reports
from rrgtrain.train.sft import with_reports
from rrgtrain.train.target_text import check_template, target_text

PROBE = "No pleural effusion."

Splits = Mapping[str, list[Study]]


def require_sampling(recipe: Recipe, directory: Path, lengths: Mapping[str, int]) -> None:
    """Raise UserError where the engine of `rollout.engine` is not there, or has no room.

    directory: as in `build_engine`. lengths: the settings that say how long a report may become,
    and what they say. Called before images are read: prompts come on top, and are measured later.
    """
    settings = recipe.rollout
    for name, length in lengths.items():
        if settings.engine == "vllm" and length >= settings.max_model_len:
            raise UserError(
                f"{name}={length} leaves no room for a prompt in rollout.max_model_len="
                f"{settings.max_model_len}; lower the first or raise the second"
            )
    require_engine(recipe, directory)


def split_of(studies: Splits, name: str) -> list[Study]:
    """The studies of a split; UserError, naming those that have any, where it has none."""
    chosen = studies.get(name) or []
    if not chosen:
        have = ", ".join(f"{k} ({len(v)})" for k, v in studies.items() if v) or "none at all"
        fix = "move studies there, or use other data"
        if name != "train":
            others = [k for k in ("test", "val", "train") if studies.get(k)]
            fix = f"pass eval.split={others[0]}" if others else fix
        raise UserError(f"the data has no {name} studies, it has {have}; {fix}")
    return chosen


def validation_split(studies: Splits) -> str:
    """Return the split by which checkpoints are chosen.

    It is val, or train in data that has no val."""
    return "val" if studies.get("val") else "train"


def check_data(
    recipe: Recipe,
    studies: Splits,
    rewards: RewardService,
    *,
    sft: bool,
    algorithm: Algorithm | None,
    chosen: list[Study] | None = None,
) -> list[Study]:
    """Every study that the run will read; UserError for what would stop it later.

    `sft` and `algorithm` say what is trained, if anything, `chosen` the training studies that
    reinforcement learning sees, where those are not all. Warns where checkpoints have to be
    chosen on the training studies.
    """
    limit = recipe.eval.limit
    if limit is not None and limit < 1:
        raise UserError(f"eval.limit={limit}; give at least 1, or null for all studies")
    tiny, trained = recipe.policy.path == "tiny", sft or algorithm is not None
    if trained:
        require_metric(recipe.eval.best_by, metric_names(recipe.reward.terms))
    train = split_of(studies, "train") if tiny or trained else []
    fitted = with_reports(train) if sft else []
    if sft:
        if recipe.sft.drops and recipe.sft.choose != "best":
            raise UserError(
                f"sft.drops={recipe.sft.drops} goes on from the best weights, but sft.choose="
                f"{recipe.sft.choose} keeps others; use sft.drops=0 or sft.choose=best"
            )
        check_template(recipe.sft.template)
        for study in fitted:
            target_text(study, recipe.sft.template)
    reached: list[Study] = []
    if algorithm is not None:
        explored = train if chosen is None else chosen
        require_reports(algorithm, explored)
        algorithm.check(explored)
        if recipe.rl.optimizer == "adamw_8bit":
            require_8bit()
        # an epoch reaches all of them
        reads = min(recipe.rl.steps * recipe.rl.prompts, len(explored))
        seen = batch_indices(len(explored), reads, 0, recipe.seed)
        reached = [explored[i] for i in sorted(set(seen))]
    if tiny and not any(study.report for study in train):
        raise UserError(
            "policy.path=tiny builds its tokenizer from training reports, and this data has none; "
            "pass policy.path=<a checkpoint directory>"
        )
    judged = split_of(studies, recipe.eval.split)[:limit]
    if trained:
        judged = [*judged, *split_of(studies, validation_split(studies))[:limit]]
        if validation_split(studies) != "val":
            warnings.warn("data has no val studies; checkpoints are chosen on train", stacklevel=2)
    _check_scores(rewards, [*judged, *reached])
    used = [*judged, *fitted, *reached, *(train if tiny else [])]
    return list({study.id: study for study in used}.values())


def check_lengths(studies: Splits, longest: int | None) -> None:
    """Refuse a longest text of more than `longest` characters.

    Raises UserError for the study that has it; None refuses none."""
    texts = ((*longest_text(study), study.id) for of in studies.values() for study in of)
    size, name, study = max(texts, default=(0, "", ""))
    if longest is not None and size > longest:
        raise UserError(
            f"study {study}: its {name} has {size:,} characters, more than data.longest_text="
            f"{longest}; shorten it or leave the study out, or raise data.longest_text as far as "
            "memory allows"
        )


@contextmanager
def held_back() -> Iterator[None]:
    """Delay warnings until the block succeeds; drop them on error.

    On an error they would hide the line that says what is wrong.
    """
    with warnings.catch_warnings(record=True) as told:
        yield
    for warning in told:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


def _check_scores(rewards: RewardService, studies: Sequence[Study]) -> None:
    """Rewards a short report of one study of each kind: with or without report and labels.

    It says something, so that a model behind an endpoint is really asked.
    """
    kinds = {(study.report is None, study.labels is None): study for study in reversed(studies)}
    rewards([PROBE] * len(kinds), list(kinds.values()))
