"""First step of a run: a recipe without contradictions. No file is read but configurations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rrgclinical.grounding import GROUNDING
from rrgpolicy.model.load import read_config, require_dtype
from rrgpolicy.model.template import check_prompt
from rrgpolicy.model.tiny import check_width
from rrgpolicy.ranks import nodes
from rrgpolicy.rollout import require_architecture
from rrgpolicy.rollout.engines import READERS, require_engine
from rrgtrain.algorithms import Algorithm, build_algorithm
from rrgtrain.errors import UserError
from rrgtrain.rewards.term_models import check_model_files
from rrgtrain.schema import PROMPT_STYLES, PolicySettings, Recipe, RlSettings, RolloutSettings
from rrgtrain.state.remembered import require_base
from rrgtrain.train.evaluate import metric_names, require_metric
from rrgtrain.train.optim import require_8bit
from rrgtrain.train.reference import check_reference
from rrgtrain.train.rl import is_on_policy
from rrgtrain.train.target_text import check_template

SERVED = "served"
"""Where a run keeps what vLLM reads of its policy."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Checked:
    """A recipe that was checked, and the stages that follow; no data was read."""

    recipe: Recipe
    config: Any = None
    """transformers' configuration of the start; None where the policy is built."""
    sft: bool = False
    algorithm: Algorithm | None = None
    """Of reinforcement learning, where that follows."""

    @property
    def stages(self) -> list[str]:
        """List the stages that train: "sft", "rl"."""
        return ["sft"] * self.sft + ["rl"] * (self.algorithm is not None)


def check(recipe: Recipe, out: Path, *, sft: bool = False, rl: bool = False) -> Checked:
    """Check all that the recipe says of itself, before anything is written or drawn.

    out: the directory of the run. `sft` and `rl` say which stages will follow. Raises UserError
    for what these cannot do with this recipe, and as `check_policy`.
    """
    check_prompt(recipe.policy.prompt, PROMPT_STYLES)
    config = check_policy(recipe)
    check_settings(recipe, sft=sft, rl=rl)
    algorithm = build_algorithm(recipe) if rl else None
    lengths = {"eval.max_new_tokens": recipe.eval.max_new_tokens}
    if rl:
        if recipe.rl.ahead:
            require_ahead(recipe.rl, recipe.rollout.engine)
        lengths["rl.max_new_tokens"] = recipe.rl.max_new_tokens
        if recipe.policy.attn == "flex" and nodes.own_device(recipe.policy.device) == "cpu":
            raise UserError("policy.attn=flex has no backward on a CPU; use policy.attn=auto")
    require_sampling(recipe.rollout, out / SERVED, lengths)
    if rl and recipe.rl.reference != "start":
        check_reference(recipe.rl.reference, recipe.policy.path, out)
    return Checked(recipe, config, sft, algorithm)


def check_policy(recipe: Recipe) -> Any:
    """Look at what the policy starts from.

    Returns transformers' configuration of the checkpoint, None where the policy is built. Raises
    UserError for model files that are missing, a device that is not there or lacks the dtype, a
    size that cannot be, and as `read_config` does. From here on `deterministic` holds.
    """
    if recipe.deterministic:
        compute_deterministically()
    edits = [recipe.edit.extractor] if "editgrpo" in recipe.rl.algorithm else []
    check_model_files(recipe.reward, [name for name in edits if name])
    return check_start(recipe.policy, recipe.rollout.engine, one_image=recipe.data.one_image)


def compute_deterministically() -> None:
    """Let this process give the same bits again, or raise where PyTorch cannot."""
    # cuBLAS reads it when it is first used, perhaps for the labels of the studies
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def check_start(settings: PolicySettings, engine: str, *, one_image: bool) -> Any:
    """Look at the checkpoint, its device and its engine alone; otherwise as `check_policy`."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"policy.device=cuda, but PyTorch {torch.__version__} finds no GPU; set "
            "policy.device=auto, or install a CUDA build of PyTorch"
        )
    require_dtype(nodes.own_device(settings.device), DTYPES[settings.dtype])
    if settings.path == "tiny":
        check_width(settings)
        return None
    config = read_config(settings.path)
    require_base(settings.path)
    if engine in READERS:
        require_architecture(config, engine, one_image=one_image)
    return config


def check_settings(recipe: Recipe, *, sft: bool, rl: bool) -> None:
    """Raise UserError for settings that contradict each other or the stages that follow."""
    if not recipe.data.boxes and (named := recipe.reward.terms.keys() & set(GROUNDING)):
        raise UserError(
            f"reward.terms has {min(named)}, which wants boxes; set data.boxes=true or leave it out"
        )
    if sft or rl:
        for by in recipe.eval.chosen_by:
            require_metric(by, metric_names(recipe.reward.terms))
    if sft:
        if recipe.sft.drops and recipe.sft.choose != "best":
            raise UserError(
                f"sft.drops={recipe.sft.drops} goes on from the best weights, but "
                f"sft.choose={recipe.sft.choose} keeps others; use sft.drops=0 or sft.choose=best"
            )
        check_template(recipe.sft.template)
    for stage, follows, settings in (("sft", sft, recipe.sft), ("rl", rl, recipe.rl)):
        if follows and settings.optimizer == "adamw_8bit":
            require_8bit(stage)


def require_ahead(rl: RlSettings, engine: str) -> None:
    """Raise UserError where batches are to be drawn one step ahead, and cannot be."""
    cause = ""
    if engine in ("transformers", "vllm"):
        cause = f"rollout.engine={engine} samples where the policy trains; use vllm_server"
    elif rl.resample:
        cause = f"rl.resample={rl.resample} draws in the step itself; use 0"
    elif not is_on_policy(rl, rl.prompts):
        cause = "a batch gets several updates; use rl.epochs=1 and rl.minibatch=null"
    elif rl.top_p < 1:
        cause = f"rl.top_p={rl.top_p:g} gives the sampler a scale that ratios lack; use 1"
    if cause:
        raise UserError(f"rl.ahead=1, but {cause}, or rl.ahead=0")


def require_sampling(
    settings: RolloutSettings, directory: Path, lengths: Mapping[str, int]
) -> None:
    """Raise UserError where the engine of `rollout.engine` is not there, or has no room.

    directory: as in `build_engine`. lengths: the settings that say how long a report may become,
    and what they say. Called before images are read: prompts come on top, and are measured later.
    """
    for name, length in lengths.items():
        if settings.engine == "vllm" and length >= settings.max_model_len:
            raise UserError(
                f"{name}={length} leaves no room for a prompt in rollout.max_model_len="
                f"{settings.max_model_len}; lower the first or raise the second"
            )
    require_engine(settings, directory)
