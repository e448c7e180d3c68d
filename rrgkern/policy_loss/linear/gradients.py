"""Make gradients in the forward: the direction of every row, or the gradients themselves.

Frozen head: dlogp/dhidden is a mean of the weight's rows under the softmax. Like the output of a
flash attention it is summed slice by slice, with the exponentials measured from the largest logit
so far: a slice that raises it rescales what was summed before. The loss is needed only at the end,
so any variant will do, and nothing is recomputed.

Gradient in the forward: the coefficient of a token whose loss is its own is known as soon as its
log-probability is. So the logits of a block of rows are formed once, for all of the vocabulary,
and turned into the gradient where they lie: three products where a recomputation takes four. The
price is the block, and a sum of the weight's gradient over the blocks, in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.head import Head, NeedsGrad, Tile, Tiles, accumulate, tile_of
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import Coefficients, RowSums, SoftmaxStats
from rrgkern.policy_loss.inputs import PolicyInputs
from rrgkern.policy_loss.linear.inputs import LinearInputs
from rrgkern.policy_loss.linear.rows import RowSelection, policy_at, policy_of_block
from rrgkern.policy_loss.op import loss_of_logps


class Plan(NamedTuple):
    """Tile sizes and the per-tile kernels (PyTorch or Triton)."""

    tiles: Tiles
    held: int  # bound of the logits that the gradient in the forward keeps, in numbers
    rows: ModuleType  # works on sums over hidden states: `cpu_kernels` or `triton_kernels`

    def held_rows(self, rows: int, head: Head) -> int:
        """Rows whose logits are kept at once: `held` follows the device as its tiles do."""
        tiling = self.tiles.tiling
        held = self.held * tiling.on(head.weight.device).elements // tiling.elements
        return tiling.even(rows, max(1, held // len(head.weight)))

    def held_slices(self, rows: int, head: Head) -> list[slice]:
        """Slices of the vocabulary for so many rows.

        All logits of a block are held; between two launches lies their copy in the dtype of the
        operands, so that it is what `elements` bounds, in bytes of the logits' dtype.
        """
        tiling = self.tiles.tiling.on(head.weight.device)
        elements = tiling.elements * head.wide.itemsize // head.operands.itemsize
        tiling = tiling._replace(elements=elements).for_rows(rows, head.widest)
        return list(tiling.slices(len(head.weight)))


class Directions(NamedTuple):
    """Statistics of each row, the sums behind them, and the total [R, H] of `direction`."""

    stats: SoftmaxStats
    sums: RowSums
    total: Tensor


def directions(
    hidden: Tensor, targets: Tensor, head: Head, entropy: bool, plan: Plan
) -> Directions:
    """hidden [R, H], targets [R]; two products of R·H·V multiplications each."""
    check_targets(targets, len(head.weight))
    rows, vocabulary = len(hidden), len(head.weight)
    sums = RowSums.empty(hidden, rows, head.wide)
    total = hidden.new_empty(hidden.shape, dtype=head.wide)
    tiling = plan.tiles.tiling.on(hidden.device).for_rows(rows, head.widest)
    kernels = plan.tiles.kernels
    scratch = tiling.scratch(hidden, rows, vocabulary, head.wide)
    spare = tiling.scratch(hidden, rows, vocabulary, head.operands)
    width, parts = 0, []
    for columns in tiling.slices(vocabulary):
        weight, first = head.rows(columns), columns.start == 0
        if len(weight) != width:
            width, blocks = len(weight), tiling.blocks(rows, len(weight))
            parts = [(hidden[b], targets[b], sums.rows(b), total[b]) for b in blocks]
        for h, t, s, part in parts:
            z = head.product(h.to(head.operands), weight, scratch)
            e, decay = kernels.exponentials(Tile(z, t, columns, head, spare), s, entropy)
            if not first:
                plan.rows.rescale(part, decay)
            accumulate(part, e, weight, first)
    return Directions(sums.close(head.temperature, entropy), sums, total)


class InForward(NamedTuple):
    """Statistics of the rows with gradient; gradients of all inputs, size 0 where not wanted."""

    stats: SoftmaxStats
    d_hidden: Tensor
    d_weight: Tensor
    d_bias: Tensor


def gradients_in_forward(
    call: LinearInputs, head: Head, rows: RowSelection, plan: Plan
) -> InForward:
    """The gradients of a token-level variant, block of rows by block of rows."""
    hidden, needs_grad = call.hidden, call.needs_grad
    wide, vocabulary, nothing = head.wide, len(head.weight), hidden.new_empty(0)
    targets, policy = rows.gather(call.targets), policy_at(call.policy, rows.with_grad)
    check_targets(targets, vocabulary)
    count = len(targets)

    # What lies in rows without gradient was never looked at: their gradient is 0.
    d_hidden = nothing.clone()
    if needs_grad.hidden:
        d_hidden = hidden.new_empty(hidden.shape)
        d_hidden = d_hidden if rows.with_grad is None else d_hidden.zero_()
    height = plan.held_rows(count, head)
    d_weight = nothing.clone()
    if needs_grad.weight:
        # One block of rows writes it once; the sum of several waits in fp32.
        once = count <= height and head.weight.dtype == head.operands
        d_weight = hidden.new_empty(head.weight.shape, dtype=head.operands if once else wide)
        d_weight = d_weight if count else d_weight.zero_()
    d_bias = hidden.new_zeros(vocabulary if needs_grad.bias else 0, dtype=wide)

    slices = plan.held_slices(height, head)
    walk = _Blocks(
        *(head, plan, needs_grad, call.entropy, slices, d_weight, d_bias),
        logits=hidden.new_empty(height * vocabulary, dtype=wide),
        spare=hidden.new_empty(height * max(s.stop - s.start for s in slices), dtype=head.operands),
    )
    parts = [SoftmaxStats(*hidden.new_empty((4, 0), dtype=wide))]
    for lo in range(0, count, height):
        hi = min(lo + height, count)
        block = slice(lo, hi)
        chosen = block if rows.with_grad is None else rows.with_grad[block]
        stats, d_h = walk.add(
            hidden[chosen].to(head.operands),
            targets[block],
            policy_of_block(policy, block),
            first=lo == 0,
        )
        parts.append(stats)
        if needs_grad.hidden:
            d_hidden[chosen] = d_h.to(d_hidden.dtype)
        del d_h  # the next block makes its own
    # The block goes before the rounded gradient of the weight comes.
    del walk
    return InForward(
        SoftmaxStats(*(torch.cat(part) for part in zip(*parts, strict=True))),
        d_hidden,
        d_weight.to(head.weight.dtype),
        d_bias.to((head.weight if head.bias is None else head.bias).dtype),
    )


@dataclass
class _Blocks:
    """The logits of one block of rows at a time, and the sums that grow from block to block."""

    head: Head
    plan: Plan
    needs_grad: NeedsGrad
    entropy: bool
    slices: list[slice]
    d_weight: Tensor
    d_bias: Tensor
    logits: Tensor
    spare: Tensor

    def add(
        self, h: Tensor, targets: Tensor, policy: PolicyInputs, *, first: bool
    ) -> tuple[SoftmaxStats, Tensor]:
        """Statistics of a block of rows and its part of dhidden; d_weight and d_bias grow."""
        head, kernels = self.head, self.plan.tiles.kernels
        whole_rows = self.plan.tiles.whole_rows if len(self.slices) == 1 else None
        sums = RowSums.empty(h, len(h), head.wide)
        for columns in self.slices:
            weight = head.rows(columns)
            z = head.product(h, weight, self.logits[len(h) * columns.start :])
            tile = Tile(z, targets, columns, head, self.spare)
            if whole_rows is None:
                kernels.add_to_sums(tile, sums, self.entropy)
        if whole_rows is None:
            stats = sums.close(head.temperature, self.entropy)
        else:
            stats = SoftmaxStats.empty(h, len(h), head.wide, self.entropy)
            whole_rows(tile, stats)
        entropy = stats.entropy.contiguous() if self.entropy else None
        _, coef, coef_entropy, _ = loss_of_logps(stats.logps.contiguous(), entropy, policy)
        coefficients = Coefficients(coef, coef_entropy if len(coef_entropy) else None)
        d_h = h.new_empty(h.shape if self.needs_grad.hidden else 0, dtype=head.wide)
        for columns in self.slices:
            z = tile_of(self.logits[len(h) * columns.start :], len(h), columns.stop - columns.start)
            tile = Tile(z, targets, columns, head, self.spare)
            dz = kernels.tile_gradient(tile, stats, coefficients)
            if self.needs_grad.bias:
                self.d_bias[columns] += dz.sum(0, dtype=head.wide)
            if self.needs_grad.hidden:
                weight = head.rows(columns)
                accumulate(d_h, dz, weight, first=columns.start == 0)
            if self.needs_grad.weight:
                accumulate(self.d_weight[columns], dz.T, h, first=first)
        return stats, d_h
