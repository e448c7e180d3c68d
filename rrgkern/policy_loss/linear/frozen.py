"""Frozen head: the direction of every row is summed in the forward, and nothing is recomputed.

dlogp/dhidden is a mean of the weight's rows under the softmax. Like the output of a flash
attention it is summed slice by slice, with the exponentials measured from the largest logit so far:
a slice that raises it rescales what was summed before. The loss needs only to be known at the end,
so any variant will do.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from rrgkern.logps.head import Head, Tile, accumulate
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import RowSums, SoftmaxStats
from rrgkern.policy_loss.linear.plan import Plan


class Directions(NamedTuple):
    """Of each row: its statistics, the sums they came from, and the total [R, H] (`direction`)."""

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
    scratch = plan.tiles.tiling.scratch(hidden, rows, vocabulary, head.wide)
    spare = plan.tiles.tiling.scratch(hidden, rows, vocabulary, head.operands)
    for columns in plan.tiles.tiling.slices(vocabulary):
        weight = head.weight[columns].to(head.operands)
        for block in plan.tiles.tiling.blocks(rows, len(weight)):
            z = head.product(hidden[block].to(head.operands), weight, scratch)
            tile = Tile(z, targets[block], columns, head, spare)
            e, decay = plan.tiles.kernels.exponentials(tile, sums.rows(block), entropy)
            first = columns.start == 0
            if not first:
                plan.rows.rescale(total[block], decay)
            accumulate(total[block], e, weight, first)
    return Directions(sums.close(head.temperature, entropy), sums, total)
