"""Save a policy from whichever layout over ranks it has."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from rrgtrain.dist import ranks
from rrgtrain.dist.sharding import full_state_dict, is_sharded
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.remembered import remember
from rrgtrain.schema import Recipe
from rrgtrain.util.files import atomic_directory


def save_policy(policy: Policy, directory: Path, recipe: Recipe) -> None:
    """Write the policy as a checkpoint directory, whole or not at all.

    It also holds what `recipe` trained it for.

    Rank 0 writes it. It holds the masters, in fp32: a training that starts from it starts where
    this one has ended.
    """
    weights = full_state_dict(_weights(policy)) if is_sharded(policy) else None
    if ranks.is_main():
        with atomic_directory(directory) as partial:
            policy.save(partial, weights)
            remember(recipe, partial)
    ranks.barrier()


def _weights(policy: Policy) -> dict[str, Tensor]:
    """The sharded model's state; unlike in `state_dict`, a tied weight is one tensor."""
    found: dict[str, Tensor] = dict(policy.model.named_parameters(remove_duplicate=False))
    found.update(policy.model.named_buffers(remove_duplicate=False))
    return {name: found[name] for name in policy.model.state_dict()}
