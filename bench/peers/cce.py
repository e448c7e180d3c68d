"""Apple's cut cross entropy, CUDA only: exact, and with its gradient filter."""

from __future__ import annotations

import inspect

from cut_cross_entropy import linear_cross_entropy
from torch import Tensor

from bench.peers import clip_loss

# Later versions accumulate in fp32 when asked to; the release on PyPI has no such option.
_FP32 = {
    name: True
    for name in ("accum_e_fp32", "accum_c_fp32")
    if name in inspect.signature(linear_cross_entropy).parameters
}


def exact(
    hidden: Tensor, weight: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    labels = targets.masked_fill(~mask, -100)
    return clip_loss(states(hidden, weight, labels), advantages, old, mask)


def filtered(
    hidden: Tensor, weight: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    labels = targets.masked_fill(~mask, -100)
    return clip_loss(filtered_states(hidden, weight, labels), advantages, old, mask)


def states(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return _logps(hidden, weight, targets, None)


def filtered_states(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return _logps(hidden, weight, targets, "auto")


def _logps(hidden: Tensor, weight: Tensor, targets: Tensor, filter_eps: str | None) -> Tensor:
    negative = linear_cross_entropy(
        hidden, weight, targets, reduction="none", filter_eps=filter_eps, impl="cce", **_FP32
    )
    return -negative.float()


def mean(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return -states(hidden, weight, targets).mean()
