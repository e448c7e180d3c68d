"""The gradient of one part of an objective, measured beside that of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rrgtrain.policy.policy import Policy

RATIO = "oracle/gradient_ratio"

Gradients = dict[torch.nn.Parameter, Tensor]


@contextmanager
def measured_apart(policy: Policy, part: Callable[[], object] | None) -> Iterator[list[Tensor]]:
    """Compare the gradient that the block adds to `.grad` with the rest.

    part: adds that part's gradient alone. It runs first, and what it adds is taken away again; it
        draws the block's own random numbers (dropout), so the block does what it would have done
        without it, to the bit. None measures nothing.

    Yields a list that is filled when the block has ended: the norms of the part's gradient and of
    the rest's, over all parameters of all ranks, on the device; see `ratio_of`. The price is
    `part`, and a copy of the gradients meanwhile.
    """
    norms: list[Tensor] = []
    if part is None:
        yield norms
        return
    before = _taken(policy)
    device = policy.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        part()
    apart = _taken(policy)
    yield norms
    rest = [
        p.grad - apart[p] if p in apart else p.grad
        for p in policy.model.parameters()
        if p.grad is not None
    ]
    # the norm of no gradient at all comes on the CPU
    norms += [_norm(part).to(device) for part in (list(apart.values()), rest)]
    for parameter, gradient in before.items():
        parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)


def ratio_of(norms: list[Tensor]) -> dict[str, float]:
    """The metric of `measured_apart`'s norms, on the host; nothing where the rest is 0."""
    apart, rest = map(float, norms or (torch.zeros(()), torch.zeros(())))
    return {RATIO: apart / rest} if rest > 0 else {}


def _taken(policy: Policy) -> Gradients:
    """The gradients, no longer in the parameters."""
    found = {p: p.grad for p in policy.model.parameters() if p.grad is not None}
    for parameter in found:
        parameter.grad = None
    return found


def _norm(gradients: list[Tensor]) -> Tensor:
    norm = torch.nn.utils.get_total_norm(gradients)
    # of sharded gradients (FSDP2)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
