"""Work on one tile of logits on a CPU: its sums, its exponentials, its gradient.

A tile is [R, C] in the statistics' dtype and is overwritten: fresh memory for every step would cost
more than the arithmetic. It holds the products of a head: bias and cap come first. The twin of
`triton_tile`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps.head import Head, Tile, tile_of
from rrgkern.logps.inputs import FromHidden, FromHiddenBackward
from rrgkern.logps.online_softmax import (
    FAR,
    LOG2E,
    Coefficients,
    OnlineSoftmax,
    RowSums,
    SoftmaxStats,
    merge,
    stats_dtype,
)


def head_of(x: FromHidden | FromHiddenBackward) -> Head:
    """Describe the head whose products read their operands in the statistics' dtype."""
    states = x.hidden.dtype
    return Head(x.weight, x.bias, x.temperature, x.softcap, stats_dtype(states), states)


def take_target(z: Tensor, targets: Tensor, columns: slice, target_logit: Tensor) -> None:
    """Move each target's logit from the tile to `target_logit` [R], leaving -inf in its place."""
    local, inside = _target_columns(targets, columns)
    here = z.gather(1, local)
    target_logit.copy_(torch.where(inside, here, target_logit[:, None])[:, 0])
    z.scatter_(1, local, here.masked_fill(inside, -torch.inf))


def sum_columns(z: Tensor, temperature: float, entropy: bool) -> OnlineSoftmax:
    """Sum the tile, -inf at the target, in fp64; `weighted` only for the entropy."""
    top = z.amax(1)
    # Logits of -inf only: measure from 0, so that each exponential is 0 and not NaN.
    z.sub_(top.masked_fill(top == -torch.inf, 0)[:, None])
    scale = LOG2E / temperature
    # exp2 rather than exp: PyTorch's exp is several times slower on a CPU. The sums are fp64: next
    # to the 1 of a leading column, fp32 would drop a tail of many small ones.
    if not entropy:
        sumexp = z.mul_(scale).exp2_().sum(1, dtype=torch.float64)
        return OnlineSoftmax(top.double(), sumexp, torch.zeros_like(sumexp))
    weights = (z * scale).exp2_()
    # A column of probability 0 adds nothing to the entropy: 0 * -inf must not be formed.
    z.clamp_(min=-FAR * temperature)
    weighted = torch.linalg.vecdot(weights, z).double() / -temperature
    return OnlineSoftmax(top.double(), weights.sum(1, dtype=torch.float64), weighted)


def _target_columns(targets: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """[R, 1] each: the target's column inside the tile (clamped), and whether it is inside."""
    width = columns.stop - columns.start
    local = (targets - columns.start)[:, None]
    return local.clamp(0, width - 1), (local >= 0) & (local < width)


def add_to_sums(tile: Tile, sums: RowSums, entropy: bool) -> None:
    """Add the tile to `sums`. With `spare` the tile is kept, for `tile_gradient` to use."""
    if tile.spare is not None:
        tile = tile._replace(z=tile_of(tile.spare, *tile.z.shape).copy_(tile.z))
    z, head = tile.z, tile.head
    cap(tile)
    take_target(z, tile.targets, tile.columns, sums.target_logit)
    after = merge(sums.others, sum_columns(z, head.temperature, entropy), head.temperature)
    for part, value in zip(sums.others, after, strict=True):
        part.copy_(value)


def exponentials(tile: Tile, sums: RowSums, entropy: bool) -> tuple[Tensor, Tensor]:
    """Add the tile to `sums`; return its exponentials and the factor of earlier ones.

    They are exp((z - max) / T) dcap/dz, `max` being the largest logit other than the target's so
    far. What was formed with an earlier one is to be multiplied by the factor, [R].
    """
    z, head = tile.z, tile.head
    cap(tile)
    take_target(z, tile.targets, tile.columns, sums.target_logit)
    slope = 1 - (z / head.softcap) ** 2 if head.softcap else None
    old = sums.others
    top = torch.maximum(old.max, z.amax(1))
    # Logits of -inf only: measure from 0, so that each exponential is 0 and not NaN.
    base = top.masked_fill(top == -torch.inf, 0)
    z.sub_(base[:, None])
    weighted = torch.zeros_like(top)
    if entropy:
        bounded = z.clamp(min=-FAR * head.temperature)
        z.mul_(LOG2E / head.temperature).exp2_()
        weighted = torch.linalg.vecdot(z, bounded).double() / -head.temperature
    else:
        z.mul_(LOG2E / head.temperature).exp2_()
    drop = torch.where(old.sumexp > 0, (base - old.max) / head.temperature, 0.0).clamp(max=FAR)
    decay = torch.exp(-drop)
    old.weighted.copy_((old.weighted + drop * old.sumexp) * decay + weighted)
    old.sumexp.mul_(decay).add_(z.sum(1, dtype=torch.float64))
    old.max.copy_(top)
    if slope is not None:
        # The target's logit is -inf here, and so is its slope.
        z.mul_(slope).masked_fill_(slope == -torch.inf, 0)
    return z, decay.to(z.dtype)


def tile_gradient(tile: Tile, stats: SoftmaxStats, coefficients: Coefficients) -> Tensor:
    """Overwrite the tile with the gradient of sum(coef * logps + coef_entropy * entropy).

    Before the cap's slope d logp / dz_j = (1[j = t] - p_j) / T, whose target entry is -expm1(logp),
    and d H / dz_j = -p_j (log p_j + H) / T.
    """
    z, targets, columns, head, _ = tile
    cap(tile)
    slope = 1 - (z / head.softcap) ** 2 if head.softcap else None
    coef = (coefficients.coef / head.temperature)[:, None]
    logps = stats.logps[:, None]
    at_target = coef * -torch.expm1(logps)
    z.sub_(stats.shift[:, None])
    if head.temperature != 1:
        z.div_(head.temperature)
    z.sub_(stats.lognorm[:, None])
    if coefficients.coef_entropy is None:
        z.mul_(LOG2E).exp2_().mul_(-coef)
    else:
        coef_entropy = (coefficients.coef_entropy / head.temperature)[:, None]
        entropy = stats.entropy[:, None]
        excess = z.clamp(min=-FAR).add_(entropy)
        z.mul_(LOG2E).exp2_().mul_(excess.mul_(coef_entropy).add_(coef).neg_())
        at_target -= coef_entropy * logps.exp() * (logps.clamp(min=-FAR) + entropy)
    local, inside = _target_columns(targets, columns)
    dz = z.scatter_(1, local, torch.where(inside, at_target, z.gather(1, local)))
    return dz if slope is None else dz.mul_(slope)


def cap(tile: Tile) -> None:
    """Add the bias to the tile and cap it, in place."""
    z, head = tile.z, tile.head
    if head.bias is not None:
        z += head.bias[tile.columns]
    if head.softcap:
        z.div_(head.softcap).tanh_().mul_(head.softcap)
