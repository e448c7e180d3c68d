"""Policies of any family of transformers, their shared prompts, ranks and samplers.

For a training loop of your own: nothing here knows a recipe. `model` loads a checkpoint, encodes
prompts and computes the log-probs of groups that share them; `rollout` samples by transformers or
vLLM; `ranks` shards weights over processes; `sampler_alarm` names the fault between a sampler and a
trainer; `preflight` those of a loop that would learn nothing. `vllm_worker` runs in vLLM's own
processes: importing this package loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrgpolicy.dry_step import LoopFault, preflight

__all__ = ["LoopFault", "preflight"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rrgpolicy import dry_step

        return getattr(dry_step, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
