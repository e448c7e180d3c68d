"""Gather one whole copy of a policy's weights, for what only reads them; fill shards.

The copy, in `policy.dtype`, stands until `drop`, which whoever changes weights calls first; a
checkpoint may be written meanwhile. A policy that computes with the very tensors it trains is its
own copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.layout import Fill, Shardable


@torch.no_grad()
def gathered(policy: Shardable, *, tower: bool = False) -> nn.Module:
    """Make the copy, or return the one that stands; all ranks call it at once.

    tower: the vision tower's weights are enough.
    """
    copied, whole = policy.layout.copied
    if copied is None or not (whole or tower):
        drop(policy)
        part = {p for _, p in policy.eyes()} if tower else {*policy.model.parameters()}
        copied = _copy(policy, part)
        policy.layout.copied = copied, not tower
    return copied


def drop(policy: Shardable) -> None:
    """Free the copy: weights are about to change, or its memory is wanted."""
    before, _ = policy.layout.copied
    policy.layout.copied = None, False
    if before is not None and before is not policy.model:
        put(before, named(before), lambda *_: None)


def unread_copy(policy: Shardable) -> nn.Module:
    """Copy the modules of a sharded policy; `sharding.setup` fills them, in `policy.dtype`."""
    assert policy.layout.plain is not None, "the policy is not sharded"
    model = without_weights(policy.layout.plain)

    def unread(_: str, parameter: nn.Parameter) -> nn.Parameter:
        empty = torch.empty(parameter.shape, dtype=policy.dtype, device="meta")
        return nn.Parameter(empty, requires_grad=False)

    put(model, named(policy.model), unread)
    return model.eval()


def _copy(policy: Shardable, wanted: set[nn.Parameter]) -> nn.Module:
    model: nn.Module = policy.model
    weights = {name: p for name, p in named(model).items() if p in wanted}
    plain = policy.layout.plain
    if plain is None:
        if all(p.dtype == policy.dtype for p in weights.values()):
            return model
        plain = without_weights(model)
    ranks.barrier()

    def whole(_: str, parameter: nn.Parameter) -> nn.Parameter:
        value: Any = parameter.detach().to(policy.dtype)
        # a DTensor is gathered in the dtype that it has by now
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        return nn.Parameter(value, requires_grad=False)

    with ranks.inseparable():
        put(plain, weights, whole)
    return plain.eval()


def named(model: nn.Module) -> dict[str, nn.Parameter]:
    """List the parameters by name, a tied one under each of its names."""
    return dict(model.named_parameters(remove_duplicate=False))


def put(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    make: Callable[[str, nn.Parameter], nn.Parameter | None],
) -> None:
    """Put what `make` gives for each parameter in its places; tied ones once."""
    made: dict[int, nn.Parameter | None] = {}
    for name, parameter in parameters.items():
        if id(parameter) not in made:
            made[id(parameter)] = make(name, parameter)
        module, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(module), leaf, made[id(parameter)])


def without_weights(model: nn.Module) -> nn.Module:
    """Copy the modules, with buffers in common and no parameter."""
    held: dict[int, Any] = {id(b): b for b in model.buffers()}
    for parameter in model.parameters():
        held[id(parameter)] = nn.Parameter(torch.empty(0), requires_grad=False)
    plain = copy.deepcopy(model, held)
    put(plain, named(plain), lambda *_: None)
    return plain


@torch.no_grad()
def fill_shards(model: nn.Module, fill: Fill, device: torch.device) -> None:
    """Put filled shards on `device` in place of those without storage.

    All ranks call it at once, before the first forward, in which FSDP2 takes the parameters that it
    finds.
    """

    def filled(name: str, parameter: nn.Parameter) -> nn.Parameter:
        shard = torch.empty_like(parameter, device=device)
        fill(name, shard)
        return nn.Parameter(shard, requires_grad=parameter.requires_grad)

    put(model, named(model), filled)


def from_main(read: Callable[[str, Tensor], None]) -> Fill:
    """Let rank 0 `read` a whole tensor, and every rank keep its part of it.

    read: writes the weight of a name into a tensor of its shape. What it raises is every rank's.
    """

    def fill(name: str, shard: Any) -> None:
        local = shard.to_local()
        whole = torch.empty(shard.shape, dtype=local.dtype, device=local.device)
        with ranks.propagate_errors():
            if ranks.is_main():
                read(name, whole)
            ranks.barrier()
        with ranks.inseparable():
            # gloo and NCCL send bytes of any dtype
            dist.broadcast(whole.flatten().view(torch.uint8), 0)
        local.copy_(_part(whole, shard))

    return fill


def _part(whole: Tensor, shard: Any) -> Tensor:
    """View a rank's part; `distribute_tensor` would copy the last part to pad it."""
    mesh = shard.device_mesh
    for placement, size, at in zip(
        shard.placements, mesh.shape, mesh.get_coordinate(), strict=True
    ):
        if placement.is_shard():
            parts = whole.chunk(size, placement.dim)
            whole = parts[at] if at < len(parts) else whole.narrow(placement.dim, 0, 0)
    return whole


def from_shards(model: nn.Module) -> Fill:
    """Copy the shards of another model, whose names and layout are the same."""
    held = dict(model.named_parameters())

    def fill(name: str, shard: Any) -> None:
        source: Any = held[name].detach()
        shard.to_local().copy_(source.to_local())

    return fill
