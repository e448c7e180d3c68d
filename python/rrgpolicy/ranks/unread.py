"""Fill the shards of a model that was built without weights.

    policy.layout.fill = fill           the model's parameters are on the meta device
    sharding.setup(mode, policy)        shards them, then `fill(name, shard)` for each

`from_main` makes such a `fill` of what rank 0 reads: a rank holds its shards and one whole tensor
at a time, and one rank reads the files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rrgpolicy.ranks import gathered, ranks
from rrgpolicy.ranks.layout import Fill


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

    gathered.put(model, gathered.named(model), filled)


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
