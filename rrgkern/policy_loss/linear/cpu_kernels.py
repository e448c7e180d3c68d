"""Work on sums over hidden states [N, H] in PyTorch: the twins of `triton_kernels`."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps.head import Head
from rrgkern.policy_loss.linear.gradients import Directions

# Numbers handled at a time: a wide copy of them stays in the cache.
BLOCK_ELEMENTS = 1 << 18


def rescale(total: Tensor, decay: Tensor) -> None:
    """Multiply the rows of total [R, H] by decay [R], in place."""
    total.mul_(decay[:, None])


def direction(found: Directions, targets: Tensor, head: Head, coef: Tensor, out: Tensor) -> None:
    """Write coef * dlogp/dhidden to out [R, H].

    The total is sum_j exp((z_j - top) / T) cap'_j w_j over the columns other than the target t,
    whose part is -expm1(logp) cap'_t w_t:

        dlogp/dhidden = (-expm1(logp) cap'_t w_t - exp((top - shift) / T - lognorm) total) / T

    A row with coef = 0 gets 0. `out` may be the total.
    """
    total = found.total
    height = max(1, BLOCK_ELEMENTS // max(1, total.shape[1]))
    norm, at_target = factors(found, head)
    for lo in range(0, len(total), height):
        block = slice(lo, lo + height)
        c = coef[block, None] / head.temperature
        rows = head.rows(targets[block]).to(total.dtype) * (c * at_target[block, None])
        rows -= total[block] * (c * norm[block, None])
        out[block] = rows.masked_fill_(c == 0, 0)


def factors(found: Directions, head: Head) -> tuple[Tensor, Tensor]:
    """Factors of the total and of the target's row of the weight, [R] each."""
    sums, stats = found.sums, found.stats
    wide = stats.logps.dtype
    norm = torch.exp((sums.others.max - stats.shift) / head.temperature - stats.lognorm)
    at_target = -torch.expm1(stats.logps)
    if head.softcap:
        at_target = at_target * (1 - (sums.target_logit / head.softcap) ** 2)
    return norm.to(wide), at_target


def scale(values: Tensor, factor: Tensor, out: Tensor) -> None:
    """Write values * factor to `out`, which may be `values`; both contiguous.

    Computed in the dtype of the 0-d `factor`.
    """
    # Rounding the factor to 16 bits first, as `values.mul_(factor)` does, would shift all of them.
    parts = (tensor.view(-1).split(BLOCK_ELEMENTS) for tensor in (values, out))
    for part, scaled in zip(*parts, strict=True):
        scaled.copy_(part.to(factor.dtype) * factor)
