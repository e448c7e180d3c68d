"""Gather one whole copy of a policy's weights in `policy.dtype`, for what only reads them.

Rollouts and validations by transformers read the copy; the masters, or each rank's part of them,
stay as they are, so a checkpoint may be written meanwhile. It is made once for the weights of a
step and stands until `drop`, which whoever changes weights calls first. A policy that computes with
the very tensors it trains is its own copy. An engine with weights of its own reads a copy of the
vision tower alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rrgpolicy.ranks import ranks
from rrgpolicy.ranks.layout import Layout


class Holder(Protocol):
    """The parts of a policy that a copy needs."""

    @property
    def model(self) -> Any: ...
    def eyes(self) -> list[tuple[str, nn.Parameter]]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def layout(self) -> Layout: ...


@torch.no_grad()
def gathered(policy: Holder, *, tower: bool = False) -> nn.Module:
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


def drop(policy: Holder) -> None:
    """Free the copy: weights are about to change, or its memory is wanted."""
    before, _ = policy.layout.copied
    policy.layout.copied = None, False
    if before is not None and before is not policy.model:
        for module, name in places(before):
            setattr(module, name, None)


def unread_copy(policy: Holder) -> nn.Module:
    """Copy the modules of a sharded policy; `sharding.setup` fills them, in `policy.dtype`."""
    assert policy.layout.plain is not None, "the policy is not sharded"
    model = without_weights(policy.layout.plain)
    meta: dict[int, nn.Parameter] = {}
    for name, parameter in policy.model.named_parameters(remove_duplicate=False):
        if id(parameter) not in meta:
            empty = torch.empty(parameter.shape, dtype=policy.dtype, device="meta")
            meta[id(parameter)] = nn.Parameter(empty, requires_grad=False)
        module, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(module), leaf, meta[id(parameter)])
    return model.eval()


def _copy(policy: Holder, wanted: set[nn.Parameter]) -> nn.Module:
    model: nn.Module = policy.model
    weights = {
        name: parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter in wanted
    }
    plain = policy.layout.plain
    if plain is None:
        if all(p.dtype == policy.dtype for p in weights.values()):
            return model
        plain = without_weights(model)
    ranks.barrier()
    whole: dict[int, nn.Parameter] = {}
    with ranks.inseparable():
        for name, parameter in weights.items():
            if id(parameter) not in whole:  # a tied weight is one tensor
                value = _whole(parameter.detach().to(policy.dtype))
                whole[id(parameter)] = nn.Parameter(value, requires_grad=False)
            module, _, leaf = name.rpartition(".")
            setattr(plain.get_submodule(module), leaf, whole[id(parameter)])
    return plain.eval()


def _whole(value: Any) -> Tensor:
    """Gather a DTensor, in the dtype that it has by now; other tensors are whole already."""
    found: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return found


def without_weights(model: nn.Module) -> nn.Module:
    """Copy the modules, with buffers in common and no parameter."""
    held: dict[int, Any] = {id(b): b for b in model.buffers()}
    for parameter in model.parameters():
        held[id(parameter)] = nn.Parameter(torch.empty(0), requires_grad=False)
    plain = copy.deepcopy(model, held)
    for module, name in places(plain):
        setattr(module, name, None)
    return plain


def places(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Walk through the module of every parameter and its name there, tied ones included."""
    for module in model.modules():
        for name, _ in [*module.named_parameters(recurse=False, remove_duplicate=False)]:
            yield module, name
