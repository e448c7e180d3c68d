"""Everything a command needs, opened once: data, policy, prompts, rewards."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrgclinical.common.files import atomic_directory
from rrgclinical.common.progress import Bar, progress
from rrgdata.images.check import check_images
from rrgdata.images.memory import ImageMemory
from rrgdata.load import open_studies
from rrgdata.phantom import PhantomConfig, write_phantom
from rrgdata.study import Study
from rrgtrain.algorithms import Algorithm
from rrgtrain.errors import UserError
from rrgtrain.policy.load import load_policy, read_config, require_dtype
from rrgtrain.policy.lora import add_lora
from rrgtrain.policy.network import ARCHITECTURES, sees_images
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import bound_images, prompt_text, refuse_images
from rrgtrain.policy.remembered import INIT
from rrgtrain.policy.template import check_prompt
from rrgtrain.policy.tiny import TinyConfig, build_tiny
from rrgtrain.policy.vision_cache import VisionCache
from rrgtrain.ranks import nodes, ranks, sharding
from rrgtrain.rewards import RewardService
from rrgtrain.rewards.labellers import SpreadLabeller
from rrgtrain.rewards.model_files import check_model_files
from rrgtrain.rollout import build_engine
from rrgtrain.run.alike import require_same_data
from rrgtrain.run.preflight import (
    check_data,
    check_lengths,
    held_back,
    split_of,
    validation_split,
)
from rrgtrain.run.room import check_room
from rrgtrain.schema import PROMPT_STYLES, Recipe
from rrgtrain.select import training_subset
from rrgtrain.train.evaluate import Evaluation, evaluate, write_reports
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.policy_sampler import PolicySampler
from rrgtrain.train.target_text import with_findings
from rrgtrain.train.vision_warmup import warm_up_vision

SERVED = "served"
"""Where a run keeps what vLLM reads of its policy."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


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

    def validator(self) -> Callable[[], dict[str, float]]:
        """Greedy evaluation of the validation split, for the loops."""
        studies = self.split(validation_split(self.studies))[: self.recipe.eval.limit]
        return lambda: self.evaluate(studies).metrics()


def sampler_of(recipe: Recipe, served: Path) -> PolicySampler:
    """Sample with the engine of `rollout.engine`; what vLLM reads goes to `served`."""
    return PolicySampler(lambda policy: build_engine(recipe, policy, served))


def phantom_root(recipe: Recipe, work: Path) -> Path:
    """Return the directory where the recipe's phantoms lie or will be written."""
    return Path(recipe.data.root).expanduser() if recipe.data.root else work / "data"


def holds_files(directory: Path) -> bool:
    """Tell whether something lies in the directory; False where there is none."""
    return directory.is_dir() and any(directory.iterdir())


def remembered_root(recipe: Recipe) -> Path | None:
    """The directory whose images are remembered between runs; None of phantoms."""
    data = recipe.data
    phantom = data.source == "phantom" or data.root is None
    return None if phantom else Path(str(data.root)).expanduser()


def broken_images(recipe: Recipe) -> dict[str, str]:
    """Get from rank 0 the image files remembered as broken.

    All ranks call it. Returns why, by absolute path.
    """
    root = remembered_root(recipe)
    known = {}
    if root is not None and ranks.is_main():
        known = ImageMemory(root, recipe.data.body_parts).broken()
    return ranks.broadcast_from_main(known)


def open_data(
    recipe: Recipe, work: Path, broken: Mapping[str, str] | None = None
) -> dict[str, list[Study]]:
    """Loads the recipe's data; phantoms are written to `data.root`, or `work`/data, first.

    broken: images known to be broken, whose studies count as broken.
    """
    data = recipe.data
    root = Path(data.root).expanduser() if data.root else None
    if data.limit is not None and data.limit < 1:
        raise UserError(f"data.limit={data.limit}; give at least 1, or null for all studies")
    if data.source == "phantom":
        config = PhantomConfig(**vars(data.phantom))
        root = phantom_root(recipe, work)
        if holds_files(root):
            write_phantom(config, root)  # nothing is written if they are the same phantoms
        else:
            bar: Bar[int] = progress(config.train + config.val + config.test, "phantom")
            with bar:
                write_phantom(config, root, progress=bar.advance)
    elif root is None:
        raise UserError(f"data.source={data.source} needs data.root=<directory of the dataset>")
    source = "iu_xray" if data.source == "phantom" else data.source
    studies = open_studies(source, root, data, work, broken, quiet=not ranks.is_main())
    check_lengths(studies, data.longest_text)
    return studies


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
    style = recipe.policy.prompt
    if recipe.policy.path != "tiny" or (resume and kept.is_dir()):
        path = str(kept) if recipe.policy.path == "tiny" else recipe.policy.path
        policy = load_for(recipe, path, masters=masters)
        return policy, PromptLoader(policy, style, recipe.data)
    with atomic_directory(kept) as partial:
        # The warm-up stands in for a tower's pretraining: it comes before any freezing and any
        # choice of dtype.
        plain = replace(
            recipe, policy=replace(recipe.policy, dtype="float32", vision_attn="packed")
        )
        train = studies.get("train") or []
        texts = [study.report for study in train if study.report]
        texts += [prompt_text(study, style=style) for study in train]
        policy = load_for(
            plain, build_tiny(TinyConfig.of(recipe.policy), texts, partial), masters=False
        )
        policy.visual.requires_grad_(True)
        prompts = PromptLoader(policy, style, recipe.data)
        warm_up_vision(policy, prompts, train, recipe.policy, batch=recipe.sft.batch)
        policy.save(partial)
    # Read back from where it stays: as a resume will, and a policy knows where it came from.
    prompts.policy = load_for(recipe, str(kept), masters=masters)
    return prompts.policy, prompts


def check_start(recipe: Recipe, *, rl: bool = False) -> Any:
    """Looks at what the policy starts from before anything is written or drawn.

    Returns transformers' configuration of the checkpoint, None where the policy is built. Raises
    UserError for model files that are missing, a device that is not there or lacks the dtype, a
    size that cannot be, and as `read_config` does. From here on `deterministic` holds.
    """
    if recipe.deterministic:
        # cuBLAS reads it when it is first used, perhaps for the labels of the studies
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    edits = [recipe.edit.extractor] if "editgrpo" in recipe.rl.algorithm else []
    check_model_files(recipe.reward, [name for name in edits if name])
    if recipe.policy.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"policy.device=cuda, but PyTorch {torch.__version__} finds no GPU; set "
            "policy.device=auto, or install a CUDA build of PyTorch"
        )
    device = nodes.own_device(recipe.policy.device)
    if rl and recipe.policy.attn == "flex" and device == "cpu":
        raise UserError("policy.attn=flex has no backward on a CPU; use policy.attn=auto")
    require_dtype(device, DTYPES[recipe.policy.dtype])
    if recipe.policy.path == "tiny":
        TinyConfig.of(recipe.policy)
        return None
    return read_config(recipe.policy.path)


def load_for(recipe: Recipe, path: str | Path, *, masters: bool) -> Policy:
    """The policy at `path` as the recipe wants it; `masters`: to be trained, see `load_policy`."""
    settings = recipe.policy
    policy = load_policy(
        path,
        dtype=DTYPES[settings.dtype],
        device=nodes.own_device(recipe.policy.device),
        freeze_vision=settings.freeze_vision,
        gradient_checkpointing=settings.gradient_checkpointing,
        attn=settings.attn,
        vision_attn=settings.vision_attn,
        # an adapter that is yet to come freezes all that is loaded
        masters=masters and settings.lora.rank == 0,
        unread=masters and settings.lora.rank == 0 and ranks.size() > 1,
    )
    bound_images(policy, settings.min_pixels, settings.max_pixels)
    return policy


@dataclass(frozen=True)
class TrainingPlan:
    """The training that will follow in a session; none by default."""

    sft: bool = False
    algorithm: Algorithm | None = None
    """Of reinforcement learning."""
    masters: bool = False
    """The policy is given masters in fp32."""


def open_session(
    recipe: Recipe,
    work: Path,
    plan: TrainingPlan | None = None,
    *,
    resume: bool = False,
    checked: Callable[[], None] = lambda: None,
) -> Session:
    """Open data and policy; what has to be written for that goes below `work`.

    All that the training of `plan` needs of the data is looked at here, before anything is
    trained; `checked` is called when that is done. `resume` uses the starting policy that the run
    has kept.
    """
    plan = plan or TrainingPlan()
    sft, algorithm = plan.sft, plan.algorithm
    check_prompt(recipe.policy.prompt, PROMPT_STYLES)
    config = check_start(recipe)
    built = config is None
    rewards = RewardService(recipe.reward)
    fresh = recipe.data.source == "phantom" and not holds_files(phantom_root(recipe, work))
    with held_back():
        broken = broken_images(recipe)
        with nodes.first_here():
            studies = open_data(recipe, work, broken)
        require_same_data(studies)
        train, labeller = studies.get("train") or [], SpreadLabeller(rewards.labeller)
        if sft and recipe.reward.against == "report":
            train = studies["train"] = with_findings(train, recipe.sft.template, labeller)
        rewards.fit(train)
        rewards.count_corpus()
        chosen = train if algorithm is None else training_subset(recipe, train, labeller)
        used = check_data(recipe, studies, rewards, sft=sft, algorithm=algorithm, chosen=chosen)
        if config is not None and not sees_images(config):
            refuse_images(used, ARCHITECTURES[config.model_type])
        if not fresh and ranks.is_main():
            check_images(used, remembered_root(recipe), recipe.data.body_parts)
    checked()
    again = resume
    with ranks.main_first() if built else nullcontext():
        # the others read what rank 0 has built
        resume = resume or not ranks.is_main()
        policy, prompts = start_policy(recipe, studies, work, resume=resume, masters=plan.masters)
    add_lora(policy, recipe.policy.lora, recipe.policy.seed)
    stages = [name for name, asked in (("sft", sft), ("rl", algorithm is not None)) if asked]
    check_room(recipe, policy, stages, work, resume=again)
    sharding.read(policy, recipe.scale.shard)
    if policy.vision_frozen and recipe.policy.vision_cache_mib:
        policy.vision_cache = VisionCache(recipe.policy.vision_cache_mib << 20)
    # dropout draws anew on every rank
    _seed(recipe.seed + ranks.rank())
    sampler = sampler_of(recipe, work / SERVED)
    return Session(recipe, studies, policy, prompts, rewards, chosen, sampler)


def _seed(seed: int) -> None:
    """The global generators; the trainer's own draws do not use them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
