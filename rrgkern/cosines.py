"""Dot products in one fixed order, the same bits on every device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

# One warp: in CUDA each thread of a warp owns a lane and the tree below is five shuffles.
LANES = 32


def lanes_of(rows: Tensor) -> Tensor:
    """Split rows [n, d] into fp64 lanes [n, ceil(d / 32), 32], padded with zeros."""
    count, width = rows.shape
    padding = -width % LANES
    return pad(rows.double(), (0, padding)).reshape(count, (width + padding) // LANES, LANES)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Multiply the rows of two `lanes_of` tensors, [n, C, 32] and [m, C, 32].

    The result is fp32 [n, m]. Lane l adds the products at l, l + 32, l + 64, ... in that order,
    starting from +0; the lanes are then added in halves (16, 8, 4, 2, 1) and the sum is rounded
    once to fp32. The product of two fp32 numbers is exact in fp64, so a fused multiply-add changes
    nothing, and the order is the same for (a, b) and (b, a): the result is symmetric and a kernel
    can repeat it bit for bit.
    """
    total = a.new_zeros(a.shape[0], b.shape[0], LANES)
    for chunk in range(a.shape[1]):
        total.addcmul_(a[:, None, chunk], b[None, :, chunk])
    width = LANES
    while width > 1:
        width //= 2
        total = total[..., :width] + total[..., width:]
    return total[..., 0].to(torch.float32)
