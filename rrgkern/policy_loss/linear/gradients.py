"""Gradient in the forward: a block of rows keeps its logits until its coefficients are known.

The coefficient of a token whose loss is its own is known as soon as its log-probability is. So the
logits of a block of rows are formed once, for all of the vocabulary, and turned into the gradient
where they lie: three products where a recomputation takes four. The price is the block, and a sum
of the weight's gradient over the blocks, in fp32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.head import Head, NeedsGrad, Tile, accumulate, tile_of
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import Coefficients, RowSums, SoftmaxStats
from rrgkern.policy_loss.linear.plan import Plan
from rrgkern.policy_loss.linear.policy import Policy
from rrgkern.policy_loss.linear.rows import Rows


class InForward(NamedTuple):
    """Statistics of the live rows; gradients of all inputs, size 0 where not wanted."""

    stats: SoftmaxStats
    hidden: Tensor
    weight: Tensor
    bias: Tensor


def gradients(
    hidden: Tensor,
    targets: Tensor,
    head: Head,
    policy: Policy,
    rows: Rows,
    wanted: NeedsGrad,
    entropy: bool,
    plan: Plan,
) -> InForward:
    """hidden [N, H], targets [N]; `policy` is a token-level variant."""
    wide, vocabulary, nothing = head.wide, len(head.weight), hidden.new_empty(0)
    live_targets, policy = rows.gather(targets), policy.at(rows.live)
    check_targets(live_targets, vocabulary)
    count = len(live_targets)

    # What lies in rows that are not live was never looked at: their gradient is 0.
    d_hidden = nothing.clone()
    if wanted.hidden:
        d_hidden = hidden.new_empty(hidden.shape)
        d_hidden = d_hidden if rows.live is None else d_hidden.zero_()
    d_weight = nothing.clone()
    if wanted.weight:
        d_weight = hidden.new_empty(head.weight.shape, dtype=wide)
        d_weight = d_weight if count else d_weight.zero_()
    d_bias = hidden.new_zeros(vocabulary if wanted.bias else 0, dtype=wide)

    height = plan.held_rows(count, vocabulary)
    slices = list(plan.tiles.tiling.slices(vocabulary))
    held = hidden.new_empty(height * vocabulary, dtype=wide)
    spare = hidden.new_empty(height * max(s.stop - s.start for s in slices), dtype=head.operands)
    parts = [SoftmaxStats(*hidden.new_empty((4, 0), dtype=wide))]
    for lo in range(0, count, height):
        block = slice(lo, min(lo + height, count))
        chosen = block if rows.live is None else rows.live[block]
        stats, d_h = _block(
            hidden[chosen].to(head.operands),
            live_targets[block],
            head,
            policy.block(block),
            d_weight,
            d_bias,
            lo == 0,
            wanted,
            entropy,
            plan,
            slices,
            held,
            spare,
        )
        parts.append(stats)
        if wanted.hidden:
            d_hidden[chosen] = d_h.to(d_hidden.dtype)
    # The block goes before the rounded gradient of the weight comes.
    del held, spare
    return InForward(
        SoftmaxStats(*(torch.cat(part) for part in zip(*parts, strict=True))),
        d_hidden,
        d_weight.to(head.weight.dtype),
        d_bias.to(head.weight.dtype),
    )


def _block(
    h: Tensor,
    targets: Tensor,
    head: Head,
    policy: Policy,
    d_weight: Tensor,
    d_bias: Tensor,
    first_block: bool,
    wanted: NeedsGrad,
    entropy: bool,
    plan: Plan,
    slices: list[slice],
    held: Tensor,
    spare: Tensor,
) -> tuple[SoftmaxStats, Tensor]:
    """Statistics of a block of rows and its part of dhidden; the sums d_weight, d_bias grow."""
    sums = RowSums.empty(h, len(h), head.wide)
    for columns in slices:
        weight = head.weight[columns].to(head.operands)
        z = head.product(h, weight, held[len(h) * columns.start :])
        plan.tiles.kernels.add_to_sums(Tile(z, targets, columns, head, spare), sums, entropy)
    stats = sums.close(head.temperature, entropy)
    entropies = stats.entropy if entropy else None
    _, coef, coef_entropy, _ = policy.loss(stats.logps, entropies)
    coefficients = Coefficients(coef, coef_entropy if len(coef_entropy) else None)
    d_h = h.new_empty(h.shape if wanted.hidden else 0, dtype=head.wide)
    for columns in slices:
        z = tile_of(held[len(h) * columns.start :], len(h), columns.stop - columns.start)
        tile = Tile(z, targets, columns, head, spare)
        dz = plan.tiles.kernels.tile_gradient(tile, stats, coefficients)
        if wanted.bias:
            d_bias[columns] += dz.sum(0, dtype=head.wide)
        if wanted.hidden:
            weight = head.weight[columns].to(head.operands)
            accumulate(d_h, dz, weight, first=columns.start == 0)
        if wanted.weight:
            accumulate(d_weight[columns], dz.T, h, first=first_block)
    return stats, d_h
