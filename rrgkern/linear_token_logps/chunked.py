"""The head and its log-probabilities, tile by tile: [N, V] is never held.

The tiles go column slice by column slice and, inside a slice, row block by row block. So the
gradient of a slice of the weight is complete when the slice is left: it is rounded once, and no
fp32 copy of [V, H] exists. The backward recomputes the logits, on the rows whose coefficients
are not both 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.token_logps import tile
from rrgkern.token_logps.row_stats import Others, RowStats, finish, merge, stats_dtype
from rrgkern.token_logps.targets import check_targets


class Tiling(NamedTuple):
    """Bounds of one tile of logits: at most `columns` wide and `elements` large."""

    columns: int
    elements: int

    def scratch(self, like: Tensor, rows: int, vocabulary: int) -> Tensor:
        """Room for one tile. Fresh memory for each would cost more page faults than products."""
        size = min(max(self.elements, min(self.columns, vocabulary)), rows * vocabulary)
        return like.new_empty(size, dtype=stats_dtype(like.dtype))

    def slices(self, vocabulary: int) -> Iterator[slice]:
        """Column slices of nearly equal width, a multiple of 64 where there are several."""
        pieces = -(-vocabulary // self.columns)
        width = vocabulary if pieces == 1 else -(-vocabulary // (64 * pieces)) * 64
        return (slice(lo, min(lo + width, vocabulary)) for lo in range(0, vocabulary, width))

    def blocks(self, rows: int, width: int) -> Iterator[slice]:
        """Row blocks that keep rows * width within `elements`."""
        height = max(1, self.elements // width)
        return (slice(lo, min(lo + height, rows)) for lo in range(0, rows, height))


class Head(NamedTuple):
    """What turns hidden states into logits, and the dtype its products read their operands in."""

    weight: Tensor
    bias: Tensor | None
    temperature: float
    softcap: float
    operands: torch.dtype

    def logits(self, hidden: Tensor, weight: Tensor, columns: slice, scratch: Tensor) -> Tensor:
        """[R, C] in the statistics' dtype, a view of `scratch`; capped, before the temperature."""
        z = scratch[: len(hidden) * len(weight)].view(len(hidden), len(weight))
        if hidden.dtype == z.dtype:
            torch.mm(hidden, weight.T, out=z)
        else:
            torch.mm(hidden, weight.T, out_dtype=z.dtype, out=z)
        if self.bias is not None:
            z += self.bias[columns]
        if self.softcap:
            z.div_(self.softcap).tanh_().mul_(self.softcap)
        return z


def forward(hidden: Tensor, targets: Tensor, head: Head, entropy: bool, tiling: Tiling) -> RowStats:
    """hidden [N, H], targets [N] -> statistics of each row."""
    check_targets(targets, len(head.weight))
    rows = len(hidden)
    target_logit = hidden.new_full((rows,), torch.nan, dtype=stats_dtype(hidden.dtype))
    others = Others(*hidden.new_zeros((3, rows), dtype=torch.float64))
    others.top.fill_(-torch.inf)
    scratch = tiling.scratch(hidden, rows, len(head.weight))
    for columns in tiling.slices(len(head.weight)):
        weight = head.weight[columns].to(head.operands)
        for block in tiling.blocks(rows, len(weight)):
            z = head.logits(hidden[block].to(head.operands), weight, columns, scratch)
            tile.take_target(z, targets[block], columns, target_logit[block])
            before = Others(*(part[block] for part in others))
            after = merge(before, tile.sweep(z, head.temperature, entropy), head.temperature)
            for part, value in zip(before, after, strict=True):
                part.copy_(value)
    return finish(others, target_logit, head.temperature, entropy)


class Gradients(NamedTuple):
    """Gradients in the dtypes of the inputs; size 0 where not asked for."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor


def backward(
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    targets: Tensor,
    head: Head,
    stats: RowStats,
    wanted: tuple[bool, bool, bool],
    tiling: Tiling,
) -> Gradients:
    """Gradients of sum(coef * logps + coef_entropy * entropy); `wanted` as in `Gradients`."""
    want_hidden, want_weight, want_bias = wanted
    weight, bias, wide = head.weight, head.bias, stats_dtype(hidden.dtype)
    nothing = hidden.new_empty(0)
    # One empty tensor each: the outputs of an op may not be the same tensor.
    d_hidden = torch.zeros_like(hidden) if want_hidden else nothing.clone()
    d_weight = torch.empty_like(weight) if want_weight else nothing.clone()
    d_bias = torch.empty_like(bias) if bias is not None and want_bias else nothing.clone()

    active = coef != 0 if coef_entropy is None else (coef != 0) | (coef_entropy != 0)
    kept = active.nonzero().flatten()
    if not len(kept):
        return Gradients(d_hidden, d_weight.zero_(), d_bias.zero_())
    # Rows are selected, never multiplied by 0: what stands in the others cannot matter.
    hidden, targets, coef = hidden[kept], targets[kept], coef[kept]
    coef_entropy = None if coef_entropy is None else coef_entropy[kept]
    stats = RowStats(*(part[kept] if len(part) else part for part in stats))

    scratch = tiling.scratch(hidden, len(hidden), len(weight))
    d_active = hidden.new_empty(hidden.shape, dtype=wide) if want_hidden else nothing
    for columns in tiling.slices(len(weight)):
        w = weight[columns].to(head.operands)
        d_slice = _slice_total(d_weight, columns, wide) if want_weight else nothing
        d_bias_slice = hidden.new_zeros(len(w), dtype=wide)
        for block in tiling.blocks(len(hidden), len(w)):
            h = hidden[block].to(head.operands)
            z = head.logits(h, w, columns, scratch)
            slope = 1 - (z / head.softcap) ** 2 if head.softcap else None
            dz = tile.gradient(
                z,
                columns,
                coef[block],
                None if coef_entropy is None else coef_entropy[block],
                targets[block],
                RowStats(*(part[block] for part in stats)),
                head.temperature,
            )
            if slope is not None:
                dz.mul_(slope)
            if d_bias.numel():
                d_bias_slice += dz.sum(0)
            dz = dz.to(head.operands)
            if want_hidden:
                _accumulate(d_active[block], dz, w, first=columns.start == 0)
            if want_weight:
                _accumulate(d_slice, dz.T, h, first=block.start == 0)
        if want_weight and d_slice.dtype != d_weight.dtype:
            d_weight[columns] = d_slice
        if d_bias.numel():
            d_bias[columns] = d_bias_slice
    if want_hidden:
        d_hidden[kept] = d_active.to(d_hidden.dtype)
    return Gradients(d_hidden, d_weight, d_bias)


def _slice_total(gradient: Tensor, rows: slice, wide: torch.dtype) -> Tensor:
    """Where the gradient of a slice is summed: in place when its dtype is wide enough."""
    part = gradient[rows]
    return part if part.dtype == wide else torch.empty_like(part, dtype=wide)


def _accumulate(total: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """total += a @ b, or = when `first`; products of 16-bit operands are summed in fp32."""
    beta = 0 if first else 1
    if a.dtype == total.dtype:
        torch.addmm(total, a, b, beta=beta, out=total)
    else:
        torch.addmm(total, a, b, out_dtype=total.dtype, beta=beta, out=total)
