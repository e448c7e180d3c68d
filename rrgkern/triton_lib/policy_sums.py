"""Sums of the policy loss: a column of partials a program, then one program."""

from __future__ import annotations

import triton
import triton.language as tl

# Rows of the partial sums; up to TOKENS they are in the order of policy_loss.reference.METRICS.
KL_SUM = tl.constexpr(0)
BELOW = tl.constexpr(1)
ABOVE = tl.constexpr(2)
RATIO = tl.constexpr(3)
RATIO_MAX = tl.constexpr(4)
RATIO_SQUARES = tl.constexpr(5)
ENTROPY = tl.constexpr(6)
ACTIVE = tl.constexpr(7)
TOKENS = tl.constexpr(8)
LOSS = tl.constexpr(9)
ROWS = tl.constexpr(16)


@triton.jit
def store_partials(
    partials_ptr,
    program,
    programs,
    kl,
    below,
    above,
    ratio,
    ratio_max,
    ratio_squares,
    entropy,
    active,
    tokens,
    loss,
):
    """Scalars of one program into its column of partials [ROWS, programs], fp64."""
    partials_ptr += program
    programs = programs.to(tl.int64)
    tl.store(partials_ptr + KL_SUM * programs, kl.to(tl.float64))
    tl.store(partials_ptr + BELOW * programs, below.to(tl.float64))
    tl.store(partials_ptr + ABOVE * programs, above.to(tl.float64))
    tl.store(partials_ptr + RATIO * programs, ratio.to(tl.float64))
    tl.store(partials_ptr + RATIO_MAX * programs, ratio_max.to(tl.float64))
    tl.store(partials_ptr + RATIO_SQUARES * programs, ratio_squares.to(tl.float64))
    tl.store(partials_ptr + ENTROPY * programs, entropy.to(tl.float64))
    tl.store(partials_ptr + ACTIVE * programs, active.to(tl.float64))
    tl.store(partials_ptr + TOKENS * programs, tokens.to(tl.float64))
    tl.store(partials_ptr + LOSS * programs, loss.to(tl.float64))


@triton.jit
def _row(totals, row, which):
    return tl.sum(tl.where(row == which, totals, 0.0))


@triton.jit(do_not_specialize=["programs"])
def policy_finish_kernel(partials_ptr, programs, loss_ptr, metrics_ptr, BLOCK: tl.constexpr):
    """Loss and metrics from the partial sums, in a fixed order: one program."""
    row = tl.arange(0, ROWS)
    lane = tl.arange(0, BLOCK)
    folded = tl.zeros([ROWS, BLOCK], tl.float64)
    partials_ptr += row[:, None].to(tl.int64) * programs
    first = 0
    # Reduced once, behind the loop: there the loads do not wait for one another.
    while first < programs:
        column = first + lane
        inside = (row[:, None] <= LOSS) & (column[None, :] < programs)
        tile = tl.load(partials_ptr + column[None, :], mask=inside, other=0.0)
        largest = tl.maximum(folded, tile)
        folded = tl.where(row[:, None] == RATIO_MAX, largest, folded + tile)
        first += BLOCK
    totals = tl.sum(folded, axis=1)
    largest = tl.max(tl.max(tl.where(row[:, None] == RATIO_MAX, folded, 0.0), axis=1), axis=0)

    tokens = _row(totals, row, TOKENS)
    ratio = _row(totals, row, RATIO)
    squares = _row(totals, row, RATIO_SQUARES)
    some = tl.maximum(tokens, 1.0)
    effective = ratio * ratio / (some * tl.where(tokens > 0, squares, 1.0))
    # The maximum of the hardware passes a NaN over; the sum shows it.
    largest = tl.where(ratio == ratio, largest, ratio)
    result = totals / some
    result = tl.where(row == RATIO_MAX, largest, result)
    result = tl.where(row == RATIO_SQUARES, effective, result)
    result = tl.where(row >= ACTIVE, totals, result)
    dtype = metrics_ptr.dtype.element_ty
    tl.store(metrics_ptr + row, result.to(dtype), mask=row <= TOKENS)
    tl.store(loss_ptr + 0 * row, totals.to(dtype), mask=row == LOSS)
