"""One row of logits: the sums over its columns, and the gradient of its logits.

The target stays out of the sums and nothing cancels; `logps/online_softmax.py` has the formulas.
A thread keeps sums of its own columns, so a column costs one exponential and the row one reduction
across threads. The target's block and the last, incomplete one stand outside the loops, whose
bodies mask and compare no column.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.triton_lib import math as lib


@triton.jit
def load_block(
    row_ptr, block, lane, column_stride, inside, BLOCK: tl.constexpr, EVICTION: tl.constexpr
):
    """Load one block's columns where `inside`, else -inf; EVICTION as in tl.load.

    A scalar `inside` predicates the load as a whole.
    """
    columns = block * BLOCK + lane
    pointers = row_ptr + columns.to(tl.int64) * column_stride
    return tl.load(pointers, inside, other=float("-inf"), eviction_policy=EVICTION)


@triton.jit
def load_other(
    row_ptr,
    number,
    others,
    target_block,
    lane,
    column_stride,
    BLOCK: tl.constexpr,
    EVICTION: tl.constexpr,
):
    """Load whole block `number` of those beside the target's; beyond the last of them, -inf."""
    block = number + (number >= target_block).to(tl.int32)
    return load_block(row_ptr, block, lane, column_stride, number < others, BLOCK, EVICTION)


@triton.jit
def sum_row(
    row_ptr,
    target,
    lane,
    column_stride,
    scale,
    VOCABULARY: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    ENTROPY: tl.constexpr,
    FAR: tl.constexpr,
    EVICTION: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Sum the columns other than the target lane by lane, in one read.

    AHEAD: how many blocks are loaded ahead of the arithmetic, 1 or 2.
    """
    FULL: tl.constexpr = VOCABULARY // BLOCK
    top = tl.full([LANES], float("-inf"), scale.dtype)
    mass = tl.zeros([LANES], scale.dtype)
    tilt = tl.zeros([LANES], scale.dtype)
    if FULL > 0:
        # The target's block, without the target; a target in the tail leaves nothing to do here.
        target_block = (target // BLOCK).to(tl.int32)
        apart = target_block < FULL
        z = load_block(row_ptr, target_block, lane, column_stride, apart, BLOCK, EVICTION)
        others = FULL - apart.to(tl.int32)
        ahead = load_other(row_ptr, 0, others, target_block, lane, column_stride, BLOCK, EVICTION)
        after = ahead
        if AHEAD == 2:
            after = load_other(
                row_ptr, 1, others, target_block, lane, column_stride, BLOCK, EVICTION
            )
        z = tl.where(target_block * BLOCK + lane == target, float("-inf"), z.to(scale.dtype))
        top, mass, tilt = fold(top, mass, tilt, z, scale, ENTROPY, FAR)
        # The first of an odd number of others: in pairs there would be one fold of nothing.
        ALONE: tl.constexpr = (FULL + 1) % AHEAD
        if ALONE:
            top, mass, tilt = fold(top, mass, tilt, ahead.to(scale.dtype), scale, ENTROPY, FAR)
            ahead = after
            after = load_other(
                row_ptr, 2, others, target_block, lane, column_stride, BLOCK, EVICTION
            )
        # The other whole blocks, AHEAD loads ahead of the arithmetic. Each load has registers of
        # its own: a copy of them would wait for it.
        for step in tl.range(ALONE, others, AHEAD):
            z = ahead.to(scale.dtype)
            ahead = load_other(
                row_ptr, step + AHEAD, others, target_block, lane, column_stride, BLOCK, EVICTION
            )
            top, mass, tilt = fold(top, mass, tilt, z, scale, ENTROPY, FAR)
            if AHEAD == 2:
                z = after.to(scale.dtype)
                after = load_other(
                    row_ptr, step + 3, others, target_block, lane, column_stride, BLOCK, EVICTION
                )
                top, mass, tilt = fold(top, mass, tilt, z, scale, ENTROPY, FAR)
    if VOCABULARY % BLOCK > 0:
        columns = FULL * BLOCK + lane
        inside = columns < VOCABULARY
        z = load_block(row_ptr, FULL, lane, column_stride, inside, BLOCK, EVICTION)
        z = tl.where(columns == target, float("-inf"), z.to(scale.dtype))
        top, mass, tilt = fold(top, mass, tilt, z, scale, ENTROPY, FAR)
    return top, mass, tilt


@triton.jit
def fold(top, mass, tilt, z, scale, ENTROPY: tl.constexpr, FAR: tl.constexpr):
    """Add columns z [LANES, VECTOR] to their lanes' sums; tilt is in bits."""
    new_top = tl.maximum(top, tl.max(z, 1))
    # A lane that saw -inf only measures from 0: its exponentials are 0, not NaN.
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    bits = (z - base[:, None]) * scale
    p = tl.exp2(bits)
    drop = (base - top) * scale
    decay = tl.exp2(-drop)
    kept = mass * decay
    if ENTROPY:
        # 0 * inf: mass 0 carries no tilt, and a column of probability 0 adds none.
        carried = tl.where(kept > 0, tilt + drop * mass, 0.0) * decay
        tilt = carried - tl.sum(tl.maximum(bits, -FAR) * p, 1)
    return new_top, kept + tl.sum(p, 1), tilt


@triton.jit
def across_lanes(top, mass, tilt, scale, ENTROPY: tl.constexpr):
    """Merge the lanes' maximum, mass and tilt (in bits, 0 unless ENTROPY)."""
    row_top = tl.max(top, 0)
    base = tl.where(row_top == float("-inf"), 0.0, row_top)
    drop = (base - top) * scale
    decay = tl.exp2(-drop)
    kept = mass * decay
    row_mass = tl.sum(kept, 0)
    row_tilt = tl.zeros_like(row_mass)
    if ENTROPY:
        row_tilt = tl.sum(tl.where(kept > 0, tilt + drop * mass, 0.0) * decay, 0)
    return row_top, row_mass, row_tilt


@triton.jit
def close_row(top, mass, tilt, target_logit, scale, ENTROPY: tl.constexpr):
    """logp of the target, shift, lognorm and entropy (0 unless ENTROPY) from the lanes' sums."""
    row_top, row_mass, row_tilt = across_lanes(top, mass, tilt, scale, ENTROPY)
    log_mass = tl.log(row_mass)
    log_odds = (row_top - target_logit) * (scale * lib.LN2) + log_mass
    # An overflow upstream, which must not pass for certainty.
    log_odds = tl.where(target_logit == float("inf"), float("nan"), log_odds)
    against = lib.softplus(log_odds)
    in_favour = lib.softplus(-log_odds)
    leads = target_logit >= row_top
    entropy = tl.zeros_like(against)
    if ENTROPY:
        p_target = lib.sigmoid(-log_odds)
        p_others = lib.sigmoid(log_odds)
        spread = in_favour + log_mass + row_tilt * lib.LN2 / row_mass
        from_target = tl.where(p_target > 0, p_target * against, 0.0)
        from_others = tl.where(p_others > 0, p_others * spread, 0.0)
        entropy = tl.where(log_odds == log_odds, from_target + from_others, log_odds)  # NaN stays
    shift = tl.where(leads, target_logit, row_top)
    return -against, shift, tl.where(leads, against, log_mass + in_favour), entropy


@triton.jit
def gradient_block(
    z,
    coef,
    coef_entropy,
    entropy,
    shift,
    lognorm,
    per_temperature,
    ENTROPY: tl.constexpr,
    FAR: tl.constexpr,
):
    """Gradient by all logits but the target's, of coef · logp (+ coef_entropy · entropy).

    Both coefficients carry their 1/T.
    """
    log_p = (z - shift) * per_temperature - lognorm
    p = tl.exp2(log_p * lib.LOG2E)
    if ENTROPY:
        # -inf is moved up before it meets a probability of 0.
        gradient = -p * (coef + coef_entropy * (tl.maximum(log_p, -FAR) + entropy))
    else:
        gradient = -coef * p
    return gradient


@triton.jit
def gradient_at_target(logp, coef, coef_entropy, entropy, ENTROPY: tl.constexpr, FAR: tl.constexpr):
    """The same by the target's logit, exact where its probability rounds to 1."""
    gradient = -coef * lib.expm1(logp)
    if ENTROPY:
        gradient -= coef_entropy * tl.exp(logp) * (tl.maximum(logp, -FAR) + entropy)
    return gradient
