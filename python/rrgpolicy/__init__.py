"""Policies of any family of transformers, their shared prompts, ranks and samplers.

For a training loop of your own: nothing here knows a recipe. `model` loads a checkpoint, encodes
prompts and computes the log-probs of groups that share them; `rollout` samples by transformers or
vLLM; `ranks` shards weights over processes; `sampler_alarm` names the fault between a sampler and a
trainer; `preflight` names those of a loop by one dry step. `vllm_worker` runs in vLLM's own
processes: importing this package loads nothing.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import `preflight`, and torch with it, where it is asked for."""
    if name != "preflight":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rrgpolicy.loop_faults import preflight

    return preflight
