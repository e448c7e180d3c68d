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
def measured_apart(policy: Policy, part: Callable[[], object] | None) -> Iterator[dict[str, float]]:
    """Compare the gradient that the block adds to `.grad` with the rest.

    part: adds that part's gradient alone. It runs first, and what it adds is taken away again; it
        draws the block's own random numbers (dropout), so the block does what it would have done
        without it, to the bit. None measures nothing.

    Yields the metrics, filled when the block has ended: the norm of the part's gradient over the
    norm of the rest's, over all parameters of all ranks; nothing where the rest is 0. The price is
    `part`, and a copy of the gradients meanwhile.
    """
    metrics: dict[str, float] = {}
    if part is None:
        yield metrics
        return
    before = _taken(policy)
    device = policy.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        part()
    apart = _taken(policy)
    yield metrics
    rest = [
        p.grad - apart[p] if p in apart else p.grad
        for p in policy.model.parameters()
        if p.grad is not None
    ]
    norm = _norm(rest)
    if norm > 0:
        metrics[RATIO] = _norm(list(apart.values())) / norm
    for parameter, gradient in before.items():
        parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)


def _taken(policy: Policy) -> Gradients:
    """The gradients, no longer in the parameters."""
    found = {p: p.grad for p in policy.model.parameters() if p.grad is not None}
    for parameter in found:
        parameter.grad = None
    return found


def _norm(gradients: list[Tensor]) -> float:
    norm = torch.nn.utils.get_total_norm(gradients)
    # of sharded gradients (FSDP2)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
