"""Choose the rollout engine of a recipe: ours, an installed one, or your own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgclinical.common.resolve import call, choose
from rrgpolicy.model.fewer_kernels import CompiledStep
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgpolicy.rollout.engine import RolloutEngine
from rrgpolicy.rollout.transformers_engine import TransformersEngine
from rrgpolicy.rollout.vllm_engine import VllmEngine, require_vllm
from rrgpolicy.rollout.vllm_server import VllmServerEngine
from rrgpolicy.rollout.weights import require_pushable

# Packages that offer an engine name its function under this group of entry points.
ENTRY_POINTS = "rrgtrain.engines"
# They are given the pictures of most families.
READERS = ("vllm", "vllm_server")
# Tokens one after another that repay compiling: a layer, 2 s against 0.2 ms a token, by estimates.
REPAID_BY = 20_000
_MEND = "define it as a function of the recipe, the policy and a directory"


def require_engine(settings: Any, directory: Path) -> None:
    """Raise UserError where the engine of `rollout.engine` is not available.

    Called before anything is trained, since fine-tuning may come before the first rollout.
    """
    find_engine(settings.engine)
    if settings.engine == "vllm":
        require_vllm()
    if settings.engine == "vllm_server":
        VllmServerEngine(settings.url, directory, wait=settings.wait)


def build_engine(
    recipe: Any, policy: Policy, directory: Path, *, trains: bool = False
) -> RolloutEngine:
    """Build the engine of `rollout.engine`; what it reads of the policy goes to `directory`.

    trains: it draws the reports of all steps. Raises UserError where vLLM is not installed, or no
    server answers; for an engine of one's own, where it fails or is no `RolloutEngine`.
    """
    name = recipe.rollout.engine
    build = find_engine(name)
    if name == "transformers":
        tokens = recipe.rl.steps * recipe.rl.max_new_tokens
        repaid = trains and policy.device.type == "cuda" and tokens >= REPAID_BY
        compiles = {"on": True, "off": False, "auto": repaid}[recipe.rollout.compile]
        if compiles and ranks.is_main():
            print("rrgtrain: the sampler's steps are compiled (rollout.compile)", file=sys.stderr)
        return TransformersEngine(CompiledStep() if compiles else None)
    if name in ENGINES:
        return ENGINES[name](recipe.rollout, policy, directory)
    engine = call(build, f"rollout.engine={name}", _MEND, recipe, policy, directory)
    if not isinstance(engine, RolloutEngine):
        raise UserError(
            f"rollout.engine={name} returned a {type(engine).__name__}; return an "
            "rrgpolicy.rollout.RolloutEngine: own_kernels, update, generate, release, close"
        )
    return engine


def find_engine(name: str) -> Any:
    """Return the function that builds the engine `name`; UserError as `resolve.choose`."""
    return choose(name, "rollout.engine", ENGINES, ENTRY_POINTS, _MEND)


def _vllm(settings: Any, policy: Policy, directory: Path) -> RolloutEngine:
    require_pushable(policy)  # the ranks gather together while they push
    if settings.engine == "vllm_server":
        return VllmServerEngine(settings.url, directory, wait=settings.wait)
    return VllmEngine(
        policy,
        directory,
        max_model_len=settings.max_model_len,
        memory=settings.memory,
        sleep=settings.sleep,
    )


ENGINES: Any = {"transformers": TransformersEngine, "vllm": _vllm, "vllm_server": _vllm}
