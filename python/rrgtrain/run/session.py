"""Third step of a run: the policy, and what samples from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from rrgclinical.common.files import atomic_directory
from rrgdata.study import Study
from rrgpolicy.model.forward import refuse_longer
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.lora import add_lora
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import bound_images, prompt_text
from rrgpolicy.model.tiny import TinyConfig, build_tiny
from rrgpolicy.model.vision_cache import VisionCache
from rrgpolicy.ranks import nodes, ranks, sharding
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgtrain.rewards import RewardService
from rrgtrain.run.checked import DTYPES, SERVED, check
from rrgtrain.run.data import Data, open_data, split_of, validation_split
from rrgtrain.run.room import check_room
from rrgtrain.run.sharing import decide_sharing
from rrgtrain.schema import PolicySettings, Recipe
from rrgtrain.state.remembered import INIT
from rrgtrain.train.engines import READERS, build_engine
from rrgtrain.train.evaluate import AxesWatch, Evaluation, evaluate, write_reports
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.vision_warmup import warm_up_vision

# Studies whose prompts are held against what was probed.
FEW = 8


@dataclass
class Session:
    """The open parts of one experiment; `studies` maps splits to studies, `chosen` are those
    training studies that reinforcement learning sees."""

    recipe: Recipe
    studies: dict[str, list[Study]]
    policy: Policy
    prompts: PromptLoader
    rewards: RewardService
    chosen: list[Study] = field(default_factory=list)
    sampler: PolicySampler = field(default_factory=PolicySampler)

    def evaluate(self, studies: list[Study], *, description: str | None = None) -> Evaluation:
        settings = self.recipe.eval
        reports, finished = write_reports(
            self.policy,
            self.prompts,
            studies,
            settings,
            sampler=self.sampler,
            description=description,
        )
        evaluation = evaluate(reports, studies, self.rewards, settings)
        return replace(evaluation, cut=[not whole for whole in finished])

    def split(self, name: str) -> list[Study]:
        return split_of(self.studies, name)

    def validator(self, watch: AxesWatch | None = None) -> Callable[[], dict[str, float]]:
        """Greedy evaluation of the validation split, for the loops; `watch` adds axes."""
        studies = self.split(validation_split(self.studies))[: self.recipe.eval.limit]
        measure = watch or (lambda evaluation: evaluation.metrics())
        return lambda: measure(self.evaluate(studies))


def start_policy(
    recipe: Recipe,
    studies: dict[str, list[Study]],
    work: Path,
    *,
    resume: bool,
    masters: bool = False,
) -> tuple[Policy, PromptLoader]:
    """The policy a run starts from, and its prompts; `masters` as in `load_policy`.

    That of `tiny` is built, warmed up and then kept as `work`/init, which is there when it is
    whole; a resumed run finds it there.
    """
    kept = work / INIT
    settings, engine = recipe.policy, recipe.rollout.engine
    style = settings.prompt
    if settings.path != "tiny" or (resume and kept.is_dir()):
        path = str(kept) if settings.path == "tiny" else settings.path
        policy = load_for(settings, path, engine, masters=masters)
        return policy, PromptLoader(policy, style, recipe.data)
    with atomic_directory(kept) as partial:
        # The warm-up stands in for a tower's pretraining: it comes before any freezing and any
        # choice of dtype.
        plain = replace(settings, dtype="float32", vision_attn="packed")
        train = studies.get("train") or []
        texts = [study.report for study in train if study.report]
        texts += [prompt_text(study, style=style) for study in train]
        made = build_tiny(TinyConfig.of(settings), texts, partial)
        policy = load_for(plain, made, engine, masters=False)
        for _, parameter in policy.eyes():
            parameter.requires_grad_(True)
        prompts = PromptLoader(policy, style, recipe.data)
        warm_up_vision(policy, prompts, train, settings, batch=recipe.sft.batch)
        policy.save(partial)
    # Read back from where it stays: as a resume will, and a policy knows where it came from.
    prompts.policy = load_for(settings, str(kept), engine, masters=masters)
    return prompts.policy, prompts


def load_for(
    settings: PolicySettings, path: str | Path, engine: str = "", *, masters: bool
) -> Policy:
    """The policy at `path`, prompts for `engine`; `masters`: to be trained, see `load_policy`."""
    policy = load_policy(
        path,
        dtype=DTYPES[settings.dtype],
        device=nodes.own_device(settings.device),
        freeze_vision=settings.freeze_vision,
        gradient_checkpointing=settings.gradient_checkpointing,
        attn=settings.attn,
        vision_attn=settings.vision_attn,
        # an adapter that is yet to come freezes all that is loaded
        masters=masters and settings.lora.rank == 0,
        unread=masters and settings.lora.rank == 0 and ranks.size() > 1,
    )
    policy.chat_template_kwargs = settings.chat_template_kwargs
    bound_images(policy, settings.min_pixels, settings.max_pixels)
    policy.keeps_pictures = engine in READERS and not policy.family.embedded
    return policy


def open_session(data: Data, work: Path, *, resume: bool = False) -> Session:
    """Open the policy; what has to be written for that goes below `work`.

    `resume` uses the starting policy that the run has kept.
    """
    checked = data.checked
    recipe = checked.recipe
    with ranks.main_first() if checked.config is None else nullcontext():
        # the others read what rank 0 has built
        there = resume or not ranks.is_main()
        policy, prompts = start_policy(
            recipe, data.studies, work, resume=there, masters=bool(checked.stages)
        )
    add_lora(policy, recipe.policy.lora, recipe.policy.seed)
    if checked.stages:
        decide_sharing(policy, recipe.policy, work)
        if policy.probed_tokens is not None:  # before a step is trained
            few = prompts.batch((data.chosen or data.studies.get("train") or [])[:FEW])
            refuse_longer(policy, few, [[torch.zeros(1)]] * len(few))
    check_room(recipe, policy, checked.stages, work, resume=resume)
    sharding.read(policy, recipe.scale.shard)
    if policy.vision_frozen and recipe.policy.vision_cache_mib:
        policy.vision_cache = VisionCache(recipe.policy.vision_cache_mib << 20)
    # dropout draws anew on every rank
    _seed(recipe.seed + ranks.rank())
    sampler = PolicySampler(lambda policy: build_engine(recipe, policy, work / SERVED))
    return Session(recipe, data.studies, policy, prompts, data.rewards, data.chosen, sampler)


def session_of(
    recipe: Recipe, work: Path, *, sft: bool = False, rl: bool = False, resume: bool = False
) -> Session:
    """Take the three steps at once, without a run directory between them."""
    data = open_data(check(recipe, work, sft=sft, rl=rl), work)
    return open_session(data, work, resume=resume)


def _seed(seed: int) -> None:
    """The global generators; the trainer's own draws do not use them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
