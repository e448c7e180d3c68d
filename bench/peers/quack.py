"""QuACK 0.6: cross entropy from logits and from hidden states, CUDA only.

From hidden states it offers a mean or a sum and makes the gradients in the forward, where the loss
is known: a policy's loss, which needs each token's log-probability first, has no door there.
"""

from __future__ import annotations

from quack.cross_entropy import cross_entropy
from quack.linear_cross_entropy import chunked_linear_cross_entropy
from torch import Tensor


def mean(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return chunked_linear_cross_entropy(hidden, weight, targets)


def row_losses(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets, reduction="none")
