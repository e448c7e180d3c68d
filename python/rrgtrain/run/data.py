"""Second step of a run: studies and rewards, checked for what training will ask."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rrgdata.images.check import ImageMemory, check_images
from rrgdata.load import holds_files, open_studies, phantom_root, remembered_root
from rrgdata.settings import DataSettings
from rrgdata.study import Study
from rrgdata.training_subset import training_subset
from rrgpolicy.model.backbone import architecture, sees_images
from rrgpolicy.model.prompt import refuse_images
from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.term_models import SpreadLabeller
from rrgtrain.run.checked import Checked
from rrgtrain.state.identity import require_same_data, require_same_subset
from rrgtrain.train.loader import batch_indices
from rrgtrain.train.rl_run import require_reports
from rrgtrain.train.sft import with_reports
from rrgtrain.train.target_text import target_text, with_findings

PROBE = "No pleural effusion."

Splits = Mapping[str, list[Study]]


@dataclass
class Data:
    """The studies of a run by split, and their rewards; no policy is open."""

    checked: Checked
    studies: dict[str, list[Study]]
    rewards: RewardService
    chosen: list[Study]
    """Training studies that reinforcement learning sees."""


def open_data(checked: Checked, work: Path) -> Data:
    """Read the studies and look at all that the stages need of them.

    What has to be written for that goes below `work`. Raises UserError before anything is trained.
    """
    recipe, rewards = checked.recipe, RewardService(checked.recipe.reward)
    data = recipe.data
    fresh = data.source == "phantom" and not holds_files(phantom_root(data, work))
    with held_back():
        studies = read_studies(data, work)
        train, labeller = studies.get("train") or [], SpreadLabeller(rewards.labeller)
        if checked.sft and recipe.reward.against == "report":
            train = studies["train"] = with_findings(train, recipe.sft.template, labeller)
        rewards.fit(train)
        if rewards.counts_corpus:
            rewards.count_corpus()
        chosen = train
        if checked.algorithm is not None:
            require_same_subset(data)
            chosen = training_subset(data, recipe.seed, train, labeller)
        used = check_data(checked, studies, rewards, chosen=chosen)
        if checked.config is not None and not sees_images(checked.config):
            refuse_images(used, str(architecture(checked.config)))
        if not fresh and ranks.is_main():
            check_images(used, remembered_root(data), data.body_parts)
    return Data(checked, studies, rewards, chosen)


def read_studies(data: DataSettings, work: Path) -> dict[str, list[Study]]:
    """Read the studies on every rank, and see that they are the same."""
    broken = broken_images(data)
    with ranks.main_first():
        studies = open_studies(data, work, broken, quiet=not ranks.is_main())
    require_same_data(studies)
    return studies


def broken_images(data: DataSettings) -> dict[str, str]:
    """Get from rank 0 the image files remembered as broken.

    All ranks call it. Returns why, by absolute path.
    """
    root = remembered_root(data)
    broken: dict[str, str] = {}
    if root is not None and ranks.is_main():
        for place in (root, *(root / Path(part.root).expanduser() for part in data.mix.values())):
            broken |= ImageMemory(place, data.body_parts).broken()
    return ranks.broadcast_from_main(broken)


def split_of(studies: Splits, name: str) -> list[Study]:
    """The studies of a split; UserError, naming those that have any, where it has none."""
    chosen = studies.get(name) or []
    if not chosen:
        have = ", ".join(f"{k} ({len(v)})" for k, v in studies.items() if v) or "none at all"
        fix = "move studies there, use other data or, in data.mix, a weight above 0"
        if name != "train":
            others = [k for k in ("test", "val", "train") if studies.get(k)]
            fix = f"pass eval.split={others[0]}" if others else fix
        raise UserError(f"the data has no {name} studies, it has {have}; {fix}")
    return chosen


def validation_split(studies: Splits) -> str:
    """Return the split by which checkpoints are chosen: val, or train in data without."""
    return "val" if studies.get("val") else "train"


def check_data(
    checked: Checked, studies: Splits, rewards: RewardService, *, chosen: list[Study] | None = None
) -> list[Study]:
    """Return every study that the run will read; UserError for what would stop it later.

    chosen: the training studies that reinforcement learning sees, where those are not all. Warns
    where checkpoints have to be chosen on the training studies.
    """
    recipe, sft, algorithm = checked.recipe, checked.sft, checked.algorithm
    tiny, trained = recipe.policy.path == "tiny", sft or algorithm is not None
    train = split_of(studies, "train") if tiny or trained else []
    fitted = with_reports(train) if sft else []
    for study in fitted:
        target_text(study, recipe.sft.template)
    reached: list[Study] = []
    if algorithm is not None:
        explored = train if chosen is None else chosen
        require_reports(algorithm, explored)
        algorithm.check(explored)
        # an epoch reaches all of them
        reads = min(recipe.rl.steps * recipe.rl.prompts, len(explored))
        seen = batch_indices(len(explored), reads, 0, recipe.seed)
        reached = [explored[i] for i in sorted(set(seen))]
    if tiny and not any(study.report for study in train):
        raise UserError(
            "policy.path=tiny builds its tokenizer from training reports, and this data has none; "
            "pass policy.path=<a checkpoint directory>"
        )
    judged = split_of(studies, recipe.eval.split)[: recipe.eval.limit]
    if trained:
        judged = [*judged, *split_of(studies, validation_split(studies))[: recipe.eval.limit]]
        if validation_split(studies) != "val":
            warnings.warn("data has no val studies; checkpoints are chosen on train", stacklevel=2)
    # a short report of one study of each kind: with or without report and labels; it says
    # something, so that a model behind an endpoint is really asked
    asked = reversed([*judged, *reached])
    kinds = {(study.report is None, study.labels is None): study for study in asked}
    rewards([PROBE] * len(kinds), list(kinds.values()))
    used = [*judged, *fitted, *reached, *(train if tiny else [])]
    return list({study.id: study for study in used}.values())


@contextmanager
def held_back() -> Iterator[None]:
    """Delay warnings until the block succeeds; drop them on error.

    On an error they would hide the line that says what is wrong.
    """
    with warnings.catch_warnings(record=True) as told:
        yield
    for warning in told:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
