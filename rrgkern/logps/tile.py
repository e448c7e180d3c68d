"""The two things done to a tile of logits on a CPU: its sums, and its gradient.

A tile is [R, C] in the statistics' dtype, `columns` being the part of the vocabulary it covers, and
is overwritten: fresh memory for every step would cost more than the arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps.online_softmax import FAR, LOG2E, Others, RowStats


def take_target(z: Tensor, targets: Tensor, columns: slice, target_logit: Tensor) -> None:
    """Move each target's logit from the tile to `target_logit` [R], leaving -inf in its place."""
    local, inside = _target_columns(targets, columns)
    here = z.gather(1, local)
    target_logit.copy_(torch.where(inside, here, target_logit[:, None])[:, 0])
    z.scatter_(1, local, here.masked_fill(inside, -torch.inf))


def sweep(z: Tensor, temperature: float, entropy: bool) -> Others:
    """Sums in fp64 over the tile, which holds -inf at the target; no `tilt` unless asked for."""
    top = z.amax(1)
    # Logits of -inf only: measure from 0, so that each exponential is 0 and not NaN.
    z.sub_(top.masked_fill(top == -torch.inf, 0)[:, None])
    scale = LOG2E / temperature
    # exp2 rather than exp: PyTorch's exp is several times slower on a CPU. The sums are fp64: next
    # to the 1 of a leading column, fp32 would drop a tail of many small ones.
    if not entropy:
        mass = z.mul_(scale).exp2_().sum(1, dtype=torch.float64)
        return Others(top.double(), mass, torch.zeros_like(mass))
    weights = (z * scale).exp2_()
    # A column of probability 0 adds nothing to the entropy: 0 * -inf must not be formed.
    z.clamp_(min=-FAR * temperature)
    tilt = torch.linalg.vecdot(weights, z).double() / -temperature
    return Others(top.double(), weights.sum(1, dtype=torch.float64), tilt)


def gradient(
    z: Tensor,
    columns: slice,
    coef: Tensor,
    coef_entropy: Tensor | None,
    targets: Tensor,
    stats: RowStats,
    temperature: float,
) -> Tensor:
    """Overwrite the tile with the gradient of sum(coef * logps + coef_entropy * entropy).

    d logp / dz_j = (1[j = t] - p_j) / T, whose target entry is -expm1(logp), and
    d H / dz_j = -p_j (log p_j + H) / T.
    """
    coef = (coef / temperature)[:, None]
    logps = stats.logps[:, None]
    at_target = coef * -torch.expm1(logps)
    z.sub_(stats.shift[:, None])
    if temperature != 1:
        z.div_(temperature)
    z.sub_(stats.lognorm[:, None])
    if coef_entropy is None:
        z.mul_(LOG2E).exp2_().mul_(-coef)
    else:
        coef_entropy = (coef_entropy / temperature)[:, None]
        entropy = stats.entropy[:, None]
        excess = z.clamp(min=-FAR).add_(entropy)
        z.mul_(LOG2E).exp2_().mul_(excess.mul_(coef_entropy).add_(coef).neg_())
        at_target -= coef_entropy * logps.exp() * (logps.clamp(min=-FAR) + entropy)
    local, inside = _target_columns(targets, columns)
    return z.scatter_(1, local, torch.where(inside, at_target, z.gather(1, local)))


def _target_columns(targets: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """[R, 1] each: the target's column inside the tile (clamped), and whether it is inside."""
    width = columns.stop - columns.start
    local = (targets - columns.start)[:, None]
    return local.clamp(0, width - 1), (local >= 0) & (local < width)
