"""What is done to a tile of logits between the products, in PyTorch: CPUs, and the kernel's twin.

A tile holds the products hidden W^T of a block of rows and the columns `columns`. Every step may
overwrite it: fresh memory for each would cost more than the arithmetic. `spare` is a second tile in
the dtype of the products' operands, which here is that of the tile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps import tile
from rrgkern.logps.head import Head, tile_of
from rrgkern.logps.online_softmax import FAR, LOG2E, RowStats, Sums, merge


def fold(
    z: Tensor,
    spare: Tensor | None,
    targets: Tensor,
    columns: slice,
    head: Head,
    sums: Sums,
    entropy: bool,
) -> None:
    """Add the tile to `sums`. With `spare` the tile is kept, for `gradient` to use."""
    if spare is not None:
        z = tile_of(spare, *z.shape).copy_(z)
    _cap(z, columns, head)
    tile.take_target(z, targets, columns, sums.target_logit)
    after = merge(sums.others, tile.sweep(z, head.temperature, entropy), head.temperature)
    for part, value in zip(sums.others, after, strict=True):
        part.copy_(value)


def exponentials(
    z: Tensor,
    spare: Tensor,
    targets: Tensor,
    columns: slice,
    head: Head,
    sums: Sums,
    entropy: bool,
) -> tuple[Tensor, Tensor]:
    """Add the tile to `sums`; also exp((z - top) / T) dcap/dz and the factor of earlier ones.

    `top` is the largest logit other than the target's so far. What was formed with an earlier top
    is to be multiplied by the factor, [R].
    """
    _cap(z, columns, head)
    tile.take_target(z, targets, columns, sums.target_logit)
    slope = 1 - (z / head.softcap) ** 2 if head.softcap else None
    old = sums.others
    top = torch.maximum(old.top, z.amax(1))
    # Logits of -inf only: measure from 0, so that each exponential is 0 and not NaN.
    base = top.masked_fill(top == -torch.inf, 0)
    z.sub_(base[:, None])
    tilt = torch.zeros_like(top)
    if entropy:
        bounded = z.clamp(min=-FAR * head.temperature)
        z.mul_(LOG2E / head.temperature).exp2_()
        tilt = torch.linalg.vecdot(z, bounded).double() / -head.temperature
    else:
        z.mul_(LOG2E / head.temperature).exp2_()
    drop = torch.where(old.mass > 0, (base - old.top) / head.temperature, 0.0)
    decay = torch.exp(-drop)
    old.tilt.copy_((old.tilt + drop * old.mass) * decay + tilt)
    old.mass.mul_(decay).add_(z.sum(1, dtype=torch.float64))
    old.top.copy_(top)
    if slope is not None:
        # The target's logit is -inf here, and so is its slope.
        z.mul_(slope).masked_fill_(slope == -torch.inf, 0)
    return z, decay.to(z.dtype)


def gradient(
    z: Tensor,
    spare: Tensor,
    targets: Tensor,
    columns: slice,
    head: Head,
    stats: RowStats,
    coef: Tensor,
    coef_entropy: Tensor | None,
) -> Tensor:
    """Gradient of sum(coef * logps + coef_entropy * entropy) for the tile's products."""
    _cap(z, columns, head)
    slope = 1 - (z / head.softcap) ** 2 if head.softcap else None
    dz = tile.gradient(z, columns, coef, coef_entropy, targets, stats, head.temperature)
    return dz if slope is None else dz.mul_(slope)


def _cap(z: Tensor, columns: slice, head: Head) -> None:
    if head.bias is not None:
        z += head.bias[columns]
    if head.softcap:
        z.div_(head.softcap).tanh_().mul_(head.softcap)
