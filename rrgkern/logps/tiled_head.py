"""The head and its log-probabilities, tile by tile: [N, V] is never held.

The tiles go column slice by column slice and, inside a slice, row block by row block. So the
gradient of a slice of the weight is complete when the slice is left: it is rounded once, and no
fp32 copy of [V, H] exists. The backward recomputes the logits, on the rows whose coefficients
are not both 0.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rrgkern.logps.head import Head, Tiling, accumulate
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import RowStats, Sums, rows_of


class TileSteps(Protocol):
    """The steps between the products: `cpu_tile`, which says what each does, or `triton_tile`."""

    def fold(
        self,
        z: Tensor,
        spare: Tensor | None,
        targets: Tensor,
        columns: slice,
        head: Head,
        sums: Sums,
        entropy: bool,
    ) -> None: ...

    def exponentials(
        self,
        z: Tensor,
        spare: Tensor,
        targets: Tensor,
        columns: slice,
        head: Head,
        sums: Sums,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]: ...

    def gradient(
        self,
        z: Tensor,
        spare: Tensor,
        targets: Tensor,
        columns: slice,
        head: Head,
        stats: RowStats,
        coef: Tensor,
        coef_entropy: Tensor | None,
    ) -> Tensor: ...


def forward(
    hidden: Tensor, targets: Tensor, head: Head, entropy: bool, tiling: Tiling, steps: TileSteps
) -> RowStats:
    """hidden [N, H], targets [N] -> statistics of each row."""
    check_targets(targets, len(head.weight))
    rows = len(hidden)
    sums = Sums.empty(hidden, rows, head.wide)
    scratch = tiling.scratch(hidden, rows, len(head.weight), head.wide)
    for columns in tiling.slices(len(head.weight)):
        weight = head.weight[columns].to(head.operands)
        for block in tiling.blocks(rows, len(weight)):
            z = head.product(hidden[block].to(head.operands), weight, scratch)
            steps.fold(z, None, targets[block], columns, head, sums.rows(block), entropy)
    return sums.close(head.temperature, entropy)


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
    steps: TileSteps,
    weight_total: Tensor | None = None,
) -> Gradients:
    """Gradients of sum(coef * logps + coef_entropy * entropy); `wanted` as in `Gradients`.

    With `weight_total` [V, H] each slice of the weight's gradient is added there as soon as it is
    complete, and the one returned is empty.
    """
    want_hidden, want_weight, want_bias = wanted
    weight, bias, wide = head.weight, head.bias, head.wide
    nothing = hidden.new_empty(0)
    into = want_weight and weight_total is not None
    # One empty tensor each: the outputs of an op may not be the same tensor.
    d_hidden = torch.zeros_like(hidden) if want_hidden else nothing.clone()
    d_weight = torch.empty_like(weight) if want_weight and not into else nothing.clone()
    d_bias = torch.empty_like(bias) if bias is not None and want_bias else nothing.clone()

    active = coef != 0 if coef_entropy is None else (coef != 0) | (coef_entropy != 0)
    kept = active.nonzero().flatten()
    if not len(kept):
        return Gradients(d_hidden, d_weight.zero_(), d_bias.zero_())
    some = len(kept) < len(hidden)
    if some:
        # Rows are selected, never multiplied by 0: what stands in the others cannot matter.
        hidden, targets, coef = hidden[kept], targets[kept], coef[kept]
        coef_entropy = None if coef_entropy is None else coef_entropy[kept]
        stats = rows_of(stats, kept)

    scratch = tiling.scratch(hidden, len(hidden), len(weight), wide)
    spare = tiling.scratch(hidden, len(hidden), len(weight), head.operands)
    # Summed in place where the dtype is wide enough.
    sums_in_place = want_hidden and not some and d_hidden.dtype == wide
    d_active = nothing
    if want_hidden:
        d_active = d_hidden if sums_in_place else hidden.new_empty(hidden.shape, dtype=wide)
    for columns in tiling.slices(len(weight)):
        w = weight[columns].to(head.operands)
        d_slice = nothing
        if want_weight:
            direct = not into and d_weight.dtype == wide
            d_slice = d_weight[columns] if direct else hidden.new_empty(w.shape, dtype=wide)
        d_bias_slice = hidden.new_zeros(len(w), dtype=wide)
        for block in tiling.blocks(len(hidden), len(w)):
            h = hidden[block].to(head.operands)
            z = head.product(h, w, scratch)
            dz = steps.gradient(
                *(z, spare, targets[block], columns, head, rows_of(stats, block)),
                *(coef[block], None if coef_entropy is None else coef_entropy[block]),
            )
            if d_bias.numel():
                d_bias_slice += dz.sum(0, dtype=wide)
            if want_hidden:
                accumulate(d_active[block], dz, w, first=columns.start == 0)
            if want_weight:
                accumulate(d_slice, dz.T, h, first=block.start == 0)
        if into:
            assert weight_total is not None
            weight_total[columns] += d_slice
        elif want_weight and d_slice.dtype != d_weight.dtype:
            d_weight[columns] = d_slice
        if d_bias.numel():
            d_bias[columns] = d_bias_slice
    if some and want_hidden:
        d_hidden[kept] = d_active.to(d_hidden.dtype)
    elif want_hidden and not sums_in_place:
        d_hidden.copy_(d_active)
    return Gradients(d_hidden, d_weight, d_bias)
