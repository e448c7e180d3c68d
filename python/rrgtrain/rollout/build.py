"""Choose the rollout engine of a recipe."""

from __future__ import annotations

from pathlib import Path

from rrgtrain.policy.policy import Policy
from rrgtrain.rollout.engine import RolloutEngine
from rrgtrain.rollout.transformers_engine import TransformersEngine
from rrgtrain.rollout.vllm_engine import VllmEngine, require_vllm
from rrgtrain.rollout.vllm_server import VllmServerEngine
from rrgtrain.rollout.weights import require_pushable
from rrgtrain.schema import Recipe


def require_engine(recipe: Recipe, directory: Path) -> None:
    """Raise UserError where the engine of `rollout.engine` is not available.

    Called before anything is trained, since fine-tuning may come before the first rollout.
    """
    settings = recipe.rollout
    if settings.engine == "vllm":
        require_vllm()
    if settings.engine == "vllm_server":
        VllmServerEngine(settings.url, directory, wait=settings.wait)


def build_engine(recipe: Recipe, policy: Policy, directory: Path) -> RolloutEngine:
    """Build the engine of `rollout.engine`; what vLLM reads of the policy goes to `directory`.

    Raises UserError where vLLM is not installed, or no server answers, or it cannot take the
    policy's adapter.
    """
    settings = recipe.rollout
    if settings.engine != "transformers":
        require_pushable(policy)  # the ranks gather together while they push
    if settings.engine == "vllm":
        return VllmEngine(
            policy,
            directory,
            max_model_len=settings.max_model_len,
            memory=settings.memory,
            sleep=settings.sleep,
            adapter=settings.lora == "adapter",
        )
    if settings.engine == "vllm_server":
        return VllmServerEngine(
            settings.url, directory, wait=settings.wait, adapter=settings.lora == "adapter"
        )
    return TransformersEngine()
