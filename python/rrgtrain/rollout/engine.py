"""What samples: transformers, vLLM in this process, or a vLLM server, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rrgtrain.policy.forward import VisionCache
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt
from rrgtrain.rollout.pushed import Pushed
from rrgtrain.rollout.transformers_engine import Rollout, generate
from rrgtrain.schema import Recipe


class RolloutEngine(Protocol):
    """Samples reports from the weights that `update` gave it last.

    Every engine keeps what `rrgtrain.rollout.generate` promises: the same prompts token by token,
    a report ends with the first of `policy.eos_ids` (included) or at `max_new_tokens`
    (unfinished), and `Rollout.logps` are those of the distribution sampled from. A member's draws
    depend on its own seed; engines with the same seed draw different reports. `own_kernels`: the
    log-probs are not the trainer's own to the bit, and may be corrected for.
    """

    own_kernels: bool

    def update(self, policy: Policy, step: int = 0) -> Pushed | None:
        """Takes over the policy's present weights; before each batch of rollouts.

        Returns what was pushed, None where the policy itself samples. From then on `generate`
        raises UserError where another push, or none, is what the engine samples from.
        """
        ...

    def follow(self, pushed: Pushed | None) -> None:
        """Another process has called `update` with this policy's weights, for an engine that both
        ask."""
        ...

    def generate(
        self,
        policy: Policy,
        prompts: Sequence[EncodedPrompt],
        *,
        group: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_new_tokens: int,
        seeds: Sequence[Sequence[int]],
        greedy: bool = False,
        vision_cache: VisionCache | None = None,
    ) -> list[list[Rollout]]:
        """`group` reports for each prompt; arguments and errors as `rrgtrain.rollout.generate`."""
        ...

    def release(self) -> None:
        """Gives back what the update needs (vLLM's cache and weights); the next call wakes it."""
        ...

    def close(self) -> None:
        """Ends what the engine started."""
        ...


class TransformersEngine:
    """The trainer's own model: nothing to update, nothing to release."""

    own_kernels = False
    generate = staticmethod(generate)

    def update(self, policy: Policy, step: int = 0) -> None:
        pass

    def follow(self, pushed: Pushed | None) -> None:
        pass

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


def require_engine(recipe: Recipe, directory: Path) -> None:
    """UserError where the engine of `rollout.engine` is not to be had: asked before anything is
    trained, since fine-tuning may come before the first rollout."""
    settings = recipe.rollout
    if settings.engine == "vllm":
        from rrgtrain.rollout.vllm_engine import require_vllm

        require_vllm()
    if settings.engine == "vllm_server":
        from rrgtrain.rollout.vllm_server import VllmServerEngine

        VllmServerEngine(settings.url, directory, wait=settings.wait)


def build_engine(recipe: Recipe, policy: Policy, directory: Path) -> RolloutEngine:
    """The engine of `rollout.engine`; what vLLM reads of the policy goes to `directory`.

    Raises UserError where vLLM is not installed, or no server answers.
    """
    settings = recipe.rollout
    if settings.engine == "vllm":
        # vLLM is only imported where a recipe asks for it
        from rrgtrain.rollout.vllm_engine import VllmEngine

        return VllmEngine(
            policy, directory, max_model_len=settings.max_model_len, memory=settings.memory
        )
    if settings.engine == "vllm_server":
        from rrgtrain.rollout.vllm_server import VllmServerEngine

        return VllmServerEngine(settings.url, directory, wait=settings.wait)
    return TransformersEngine()
