"""Save a policy from whichever layout over ranks it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rrgclinical.common.files import atomic_directory
from rrgpolicy.model.adapters import adapter_state, is_adapted
from rrgpolicy.model.policy import Policy
from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.sharding import full_state_dict, is_sharded
from rrgtrain.state.files import base_files
from rrgtrain.state.remembered import write_remembered


def save_policy(policy: Policy, directory: Path, trained_as: Mapping[str, Any]) -> None:
    """Write the policy as a checkpoint directory, whole or not at all.

    Rank 0 writes it, with `trained_as`, see `to_remember`. It holds the masters, in fp32: a
    training that starts from it starts where this one has ended.
    """
    weights = full_state_dict(_weights(policy)) if is_sharded(policy) else None
    if ranks.is_main():
        with atomic_directory(directory) as partial:
            policy.save(partial, weights)
            write_remembered(partial, {**trained_as, **base_files(partial)})
    ranks.barrier()


def _weights(policy: Policy) -> dict[str, Tensor]:
    """The sharded model's state that is written; a tied weight is one tensor."""
    found: dict[str, Tensor] = dict(policy.model.named_parameters(remove_duplicate=False))
    found.update(policy.model.named_buffers(remove_duplicate=False))
    state = {name: found[name] for name in policy.model.state_dict()}
    if is_adapted(policy.model):  # without its base, which rank 0 might not hold
        own = {id(w) for w in adapter_state(policy.model, state).values()}
        state = {name: weight for name, weight in state.items() if id(weight) in own}
    return state
