"""Count the bytes that a rank holds of a policy in training, exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rrgtrain.plan.sizes import Weight, elements

FP32 = 4
# bitsandbytes keeps smaller tensors in 32 bits, and one fp32 scale for each block of the others.
SMALLEST_8BIT, BLOCK_8BIT = 4096, 256
UNITS_AHEAD = 2
"""Layers whose gathered copy is there at once: the one that computes and the next."""


@dataclass(frozen=True)
class StateBytes:
    """Bytes of one rank.

    `gathered` is the copy of the whole model in `policy.dtype` that rollouts and pushes to vLLM
    read; gradients are freed before there is one. `staged` is the pinned copy that a checkpoint is
    written from, each tensor of a power of two, as PyTorch allocates them.
    """

    weights: int
    gradients: int
    moments: int
    gathered: int
    staged: int


def state_bytes(
    weights: Iterable[Weight], *, compute: int, ranks: int = 1, optimizer: str = "adamw"
) -> StateBytes:
    """Predict what each of `ranks` holds of a policy loaded with `masters`, placed or not.

    A weight is cut along its first axis into equal parts, the last ones padded. Of n elements, what
    trains takes 4n bytes of weights, 4n of gradients and 8n of moments (2n in 8 bits), and 2n of a
    gathered copy in bf16; what never trains takes its own bytes. In a process alone there is no
    second copy of what is in `policy.dtype` already.

    compute: bytes of a number of `policy.dtype`. optimizer: `rl.optimizer`. The reference of KL,
    activations and vLLM come on top.
    """
    held = gradients = moments = gathered = staged = 0
    for weight in weights:
        rows = weight.shape[0] if weight.shape else 1
        part = -(-rows // ranks) * (weight.elements // max(1, rows))
        held += part * weight.itemsize
        if ranks > 1 or weight.itemsize != compute:
            gathered += weight.elements * compute
        if weight.trained:
            own, moment = part * weight.itemsize, _moment(part, weight.itemsize, optimizer)
            gradients += own
            moments += 2 * sum(moment)
            staged += sum(1 << (size - 1).bit_length() for size in (own, *moment, *moment))
    return StateBytes(held, gradients, moments, gathered, staged)


def _moment(count: int, size: int, optimizer: str) -> tuple[int, ...]:
    if optimizer == "adamw_8bit" and count >= SMALLEST_8BIT:
        return count, FP32 * -(-count // BLOCK_8BIT)
    return (count * size,)


def copies(weights: list[Weight], layers: int, *, compute: int, ranks: int) -> int:
    """Count the bytes that `fully_shard` gathers for an update, in the dtype of computation.

    What lies outside the layers stays gathered. In a process alone what never trains and has that
    dtype is used as it is.
    """
    if ranks == 1 and compute == FP32:
        return 0
    cast = [w for w in weights if ranks > 1 or w.trained or w.itemsize != compute]
    inside = elements(cast, "layer", "adapter")
    return compute * (elements(cast) - inside + UNITS_AHEAD * inside // max(1, layers))
