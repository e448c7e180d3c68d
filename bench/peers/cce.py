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
    return _loss(hidden, weight, targets, advantages, old, mask, None)


def filtered(
    hidden: Tensor, weight: Tensor, targets: Tensor, advantages: Tensor, old: Tensor, mask: Tensor
) -> Tensor:
    return _loss(hidden, weight, targets, advantages, old, mask, "auto")


def _loss(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    advantages: Tensor,
    old: Tensor,
    mask: Tensor,
    filter_eps: str | None,
) -> Tensor:
    labels = targets.masked_fill(~mask, -100)
    negative = linear_cross_entropy(
        hidden, weight, labels, reduction="none", filter_eps=filter_eps, impl="cce", **_FP32
    )
    return clip_loss(-negative.float(), advantages, old, mask)
