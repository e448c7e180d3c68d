"""Second and third pass of the policy loss: the tokens, then their sums."""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.policy_loss.triton_math import LOG_RATIO_LIMIT, difference, exp, limited
from rrgkern.policy_loss.triton_terms import (
    SEQUENCE,
    SEQUENCE_TOKEN,
    TOKEN,
    VESPO,
    behaviour_logps,
    correction_factor,
    kl_estimate,
    load_advantage,
    load_kept,
    log_correction,
    scored_tokens,
    surrogate,
)

# Columns of the partial sums; up to TOKENS they are in the order of reference.METRICS.
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
COLUMNS = tl.constexpr(16)


@triton.jit
def _sequence_of(offsets_ptr, first, token, n_sequences, halvings):
    """The last sequence that begins at or before each token, by bisection: never an empty one."""
    low = 0 * token
    high = low + n_sequences - 1
    step = 0
    while step < halvings:
        middle = (low + high + 1) // 2
        begun = tl.load(offsets_ptr + middle) - first <= token
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle - 1)
        step += 1
    return low


@triton.jit(do_not_specialize=["n_sequences", "halvings"])
def policy_loss_token_kernel(
    logps_ptr,
    advantages_ptr,
    offsets_ptr,
    scale_ptr,
    old_ptr,
    ref_ptr,
    sampler_ptr,
    weight_ptr,
    entropy_ptr,
    on_policy_ptr,
    mask_ptr,
    log_ratio_ptr,
    log_correction_ptr,
    pulled_ptr,
    coef_ptr,
    coef_entropy_ptr,
    partials_ptr,
    n_tokens,
    n_sequences,
    halvings,
    beta: tl.float64,
    entropy_coef: tl.float64,
    lowest: tl.float64,
    highest: tl.float64,
    p0: tl.float64,
    p1: tl.float64,
    p2: tl.float64,
    p3: tl.float64,
    SURROGATE: tl.constexpr,
    LEVEL: tl.constexpr,
    KL: tl.constexpr,
    KL_WEIGHTED: tl.constexpr,
    SAMPLER_PER_SEQUENCE: tl.constexpr,
    SAMPLER_MODE: tl.constexpr,
    ADVANTAGE_PER_TOKEN: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """coef and coef_entropy of BLOCK tokens, and one column of partial sums in fp64."""
    dtype = logps_ptr.dtype.element_ty
    block = tl.program_id(0).to(tl.int64)
    # The block's place goes into the pointers once, in 64 bits; within the block 32 bits do.
    first = block * BLOCK
    token = tl.arange(0, BLOCK)
    logps_ptr += first
    coef_ptr += first
    if ADVANTAGE_PER_TOKEN:
        advantages_ptr += first
    if SCALE_PER_TOKEN:
        scale_ptr += first
    if old_ptr is not None:
        old_ptr += first
    if ref_ptr is not None:
        ref_ptr += first
    if sampler_ptr is not None:
        sampler_ptr += first
    if weight_ptr is not None:
        weight_ptr += first
    if entropy_ptr is not None:
        entropy_ptr += first
    if mask_ptr is not None:
        mask_ptr += first
    if coef_entropy_ptr is not None:
        coef_entropy_ptr += first

    inside = token.to(tl.int64) < n_tokens - first
    keep = scored_tokens(mask_ptr, token, inside)
    sequence = _sequence_of(offsets_ptr, first, token, n_sequences, halvings)
    injected = tl.zeros([BLOCK], tl.int1)
    if on_policy_ptr is not None:
        injected = keep & (tl.load(on_policy_ptr + sequence, mask=keep, other=0) != 0)

    logps = load_kept(logps_ptr, token, inside, keep)
    advantage = load_advantage(
        advantages_ptr, weight_ptr, token, sequence, inside, keep, ADVANTAGE_PER_TOKEN
    )
    scale = load_kept(scale_ptr, token if SCALE_PER_TOKEN else sequence, inside, keep)

    behaviour = behaviour_logps(old_ptr, logps, token, inside, keep, injected)
    log_ratio = difference(logps, behaviour)
    log_weight = log_ratio
    if SURROGATE == VESPO:
        log_weight = load_kept(log_ratio_ptr, sequence, inside, keep)
    if LEVEL != TOKEN:
        mean = load_kept(log_ratio_ptr, sequence, inside, keep)
        log_ratio = tl.where(injected, log_ratio, mean)
    ratio = exp(limited(log_ratio))

    loss, per_ratio, per_logp, below, above = surrogate(
        ratio, advantage, logps, log_weight, p0, p1, p2, p3, SURROGATE
    )
    if sampler_ptr is not None and SURROGATE != VESPO:
        if SAMPLER_PER_SEQUENCE:
            log = load_kept(log_correction_ptr, sequence, inside, keep)
        else:
            log = log_correction(sampler_ptr, behaviour, token, inside, keep, injected)
        factor = correction_factor(log, injected, lowest, highest, SAMPLER_MODE)
        loss *= factor
        per_ratio *= factor
        per_logp *= factor

    kl = tl.zeros([BLOCK], dtype)
    if ref_ptr is not None:
        kl, kl_slope = kl_estimate(ref_ptr, logps, token, inside, keep, KL)
        weight_of_kl = tl.full((), beta, dtype)
        if KL_WEIGHTED:
            loss += weight_of_kl * kl * ratio
            per_ratio += weight_of_kl * kl
            per_logp += weight_of_kl * kl_slope * ratio
        else:
            loss += weight_of_kl * kl
            per_logp += weight_of_kl * kl_slope

    entropy = tl.zeros([BLOCK], dtype)
    if entropy_ptr is not None:
        entropy = load_kept(entropy_ptr, token, inside, keep)
        bonus = tl.full((), entropy_coef, dtype)
        loss -= bonus * entropy
        if coef_entropy_ptr is not None:
            tl.store(coef_entropy_ptr + token, tl.where(keep, -bonus * scale, 0.0), mask=inside)

    moves = ratio
    if LEVEL != SEQUENCE_TOKEN:
        moves = tl.where(tl.abs(log_ratio) > LOG_RATIO_LIMIT, 0.0, ratio)
    through_ratio = scale * per_ratio * moves
    if LEVEL == SEQUENCE:
        pulled = load_kept(pulled_ptr, sequence, inside, keep)
        through_ratio = tl.where(injected, through_ratio, pulled)
    coef = tl.where(keep, through_ratio + scale * per_logp, 0.0)
    tl.store(coef_ptr + token, coef, mask=inside)

    partials = partials_ptr + block
    columns = tl.num_programs(0).to(tl.int64)
    wide = ratio.to(tl.float64)
    scaled = tl.where(keep, scale * loss, 0.0).to(tl.float64)
    tl.store(partials + KL_SUM * columns, tl.sum(kl.to(tl.float64)))
    tl.store(partials + BELOW * columns, tl.sum((below & keep).to(tl.int32)).to(tl.float64))
    tl.store(partials + ABOVE * columns, tl.sum((above & keep).to(tl.int32)).to(tl.float64))
    tl.store(partials + RATIO * columns, tl.sum(tl.where(keep, wide, 0.0)))
    tl.store(partials + RATIO_MAX * columns, tl.max(tl.where(keep, wide, 0.0)))
    tl.store(partials + RATIO_SQUARES * columns, tl.sum(tl.where(keep, wide * wide, 0.0)))
    tl.store(partials + ENTROPY * columns, tl.sum(entropy.to(tl.float64)))
    tl.store(partials + ACTIVE * columns, tl.sum((coef != 0).to(tl.int32)).to(tl.float64))
    tl.store(partials + TOKENS * columns, tl.sum(keep.to(tl.int32)).to(tl.float64))
    tl.store(partials + LOSS * columns, tl.sum(scaled))


@triton.jit
def _column(totals, column, which):
    return tl.sum(tl.where(column == which, totals, 0.0))


@triton.jit(do_not_specialize=["n_blocks"])
def policy_loss_finish_kernel(partials_ptr, n_blocks, loss_ptr, metrics_ptr, BLOCK: tl.constexpr):
    """Loss and metrics from the partial sums, in a fixed order: one program."""
    column = tl.arange(0, COLUMNS)
    totals = tl.zeros([COLUMNS], tl.float64)
    largest = tl.zeros([COLUMNS], tl.float64)
    first = 0
    while first < n_blocks:
        block = first + tl.arange(0, BLOCK)
        tile = tl.load(
            partials_ptr + column[:, None].to(tl.int64) * n_blocks + block[None, :],
            mask=(column[:, None] <= LOSS) & (block[None, :] < n_blocks),
            other=0.0,
        )
        totals += tl.sum(tile, axis=1)
        largest = tl.maximum(largest, tl.max(tile, axis=1))
        first += BLOCK

    tokens = _column(totals, column, TOKENS)
    ratio = _column(totals, column, RATIO)
    squares = _column(totals, column, RATIO_SQUARES)
    some = tl.maximum(tokens, 1.0)
    effective = ratio * ratio / (some * tl.where(tokens > 0, squares, 1.0))
    # The maximum of the hardware passes a NaN over; the sum shows it.
    largest = tl.where(ratio == ratio, largest, ratio)
    result = totals / some
    result = tl.where(column == RATIO_MAX, largest, result)
    result = tl.where(column == RATIO_SQUARES, effective, result)
    result = tl.where(column >= ACTIVE, totals, result)
    dtype = metrics_ptr.dtype.element_ty
    tl.store(metrics_ptr + column, result.to(dtype), mask=column <= TOKENS)
    tl.store(loss_ptr + 0 * column, totals.to(dtype), mask=column == LOSS)
