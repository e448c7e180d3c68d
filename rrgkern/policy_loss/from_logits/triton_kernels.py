"""Make loss and gradient in one launch that reads each row from memory once.

A program owns a row. Sweep 1 is the softmax of `token_logps`, one scalar stage the policy loss of
its token, sweep 2 reads the row again and writes the gradient. It walks backwards, so that what was
read last, and lies nearest, comes first. For the row to be in the L2 cache still, few rows may be
under way at a time: wide rows get so many warps that a multiprocessor holds one of them.

Bytes: N·V logits read once, N·V of gradient written; what of the second read the caches do not
serve is read twice. Some 60 bytes a token for the loss itself.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.triton_lib.exact import difference, exp, limited
from rrgkern.triton_lib.policy import (
    POLICY_POINTERS,
    behaviour_logps,
    correction_factor,
    kl_estimate,
    load_advantage,
    load_kept,
    log_correction,
    token_loss,
)
from rrgkern.triton_lib.policy_sums import ROWS, store_partials
from rrgkern.triton_lib.softmax_row import (
    close_row,
    gradient_at_target,
    gradient_block,
    load_block,
    sum_row,
)


@triton.jit
def _sequence_of(offsets_ptr, row, n_sequences, LANES: tl.constexpr):
    """The last sequence that begins at or before the row: how many do, less one."""
    lane = tl.arange(0, LANES)
    begun = tl.zeros([LANES], tl.int32)
    first = 0
    while first < n_sequences:
        inside = first + lane < n_sequences
        start = tl.load(offsets_ptr + first + lane, mask=inside, other=0)
        begun += (inside & (start <= row)).to(tl.int32)
        first += LANES
    return tl.sum(begun).to(tl.int64) - 1


@triton.jit
def _load_again(logits_ptr, block, lane, column_stride, inside, BLOCK: tl.constexpr):
    """Load a block for the last time."""
    return load_block(logits_ptr, block, lane, column_stride, inside, BLOCK, EVICTION="evict_first")


@triton.jit
def _write_block(
    gradient_ptr,
    block,
    lane,
    column_stride,
    inside,
    z,
    sides,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    BONUS: tl.constexpr,
    FAR: tl.constexpr,
):
    """Store the gradient of the logits z of a block; `sides` are the row's numbers for it."""
    coef, coef_entropy, entropy, shift, lognorm, per_temperature = sides
    gradient = gradient_block(
        z.to(WIDE), coef, coef_entropy, entropy, shift, lognorm, per_temperature, BONUS, FAR
    )
    columns = block * BLOCK + lane
    tl.store(
        gradient_ptr + columns.to(tl.int64) * column_stride,
        gradient.to(gradient_ptr.dtype.element_ty),
        inside,
        cache_modifier=".cs",  # nothing reads it soon: rows under way keep their place in the L2
    )


@triton.jit(
    do_not_specialize=["rows_per_batch", "n_sequences"],
    do_not_specialize_on_alignment=POLICY_POINTERS,
)
def policy_loss_from_logits_kernel(
    logits_ptr,
    targets_ptr,
    advantages_ptr,
    offsets_ptr,
    scale_ptr,
    old_ptr,
    ref_ptr,
    sampler_ptr,
    weight_ptr,
    on_policy_ptr,
    mask_ptr,
    gradient_ptr,
    active_ptr,
    partials_ptr,
    batch_stride,
    row_stride,
    column_stride,
    rows_per_batch,
    gradient_batch_stride,
    gradient_row_stride,
    gradient_column_stride,
    n_sequences,
    bits_per_logit: tl.float64,
    inverse_temperature: tl.float64,
    beta: tl.float64,
    entropy_coef: tl.float64,
    lowest: tl.float64,
    highest: tl.float64,
    p0: tl.float64,
    p1: tl.float64,
    p2: tl.float64,
    p3: tl.float64,
    SURROGATE: tl.constexpr,
    KL: tl.constexpr,
    KL_WEIGHTED: tl.constexpr,
    SAMPLER_MODE: tl.constexpr,
    ADVANTAGE_PER_TOKEN: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
    FIND_SEQUENCE: tl.constexpr,
    ENTROPY: tl.constexpr,
    BONUS: tl.constexpr,
    VOCABULARY: tl.constexpr,
    WIDE: tl.constexpr,
    FAR: tl.constexpr,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Write, one row per program, its column of partial sums, its `active` and its gradient.

    `bits_per_logit` = log2(e) / T. ENTROPY: compute it; BONUS: it is in the loss. A row that
    `mask` leaves out is not read, and one without gradient is not read twice.
    """
    BLOCK: tl.constexpr = LANES * VECTOR
    FULL: tl.constexpr = VOCABULARY // BLOCK
    TAIL: tl.constexpr = VOCABULARY % BLOCK
    row = tl.program_id(0).to(tl.int64)
    batch = row // rows_per_batch
    place = row % rows_per_batch
    logits_ptr += batch * batch_stride + place * row_stride
    lane = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]

    keep = row >= 0
    if mask_ptr is not None:
        keep = tl.load(mask_ptr + row) != 0
    target = tl.load(targets_ptr + row)
    zero = tl.full([], 0.0, WIDE)
    coef = zero
    coef_entropy = zero
    logp = zero
    shift = zero
    lognorm = zero
    entropy = zero
    if keep:
        # 1. Online softmax: one sweep over the row; the next block is loaded ahead.
        bits = tl.full([], bits_per_logit, WIDE)
        target_logit = tl.load(logits_ptr + target * column_stride).to(WIDE)
        sequence = row
        if FIND_SEQUENCE:
            sequence = _sequence_of(offsets_ptr, row, n_sequences, LANES)
        top, mass, tilt = sum_row(
            logits_ptr,
            target,
            lane,
            column_stride,
            bits,
            VOCABULARY,
            LANES,
            BLOCK,
            ENTROPY,
            FAR,
            EVICTION="evict_last",
            AHEAD=AHEAD,
        )
        logp, shift, lognorm, entropy = close_row(top, mass, tilt, target_logit, bits, ENTROPY)

        # 2. Ratio, sampler correction and KL of the token.
        injected = row < 0
        if on_policy_ptr is not None:
            injected = tl.load(on_policy_ptr + sequence) != 0
        advantage = load_advantage(
            advantages_ptr, weight_ptr, row, sequence, keep, keep, ADVANTAGE_PER_TOKEN
        )
        scale = load_kept(scale_ptr, row if SCALE_PER_TOKEN else sequence, keep, keep)
        behaviour = behaviour_logps(old_ptr, logp, row, keep, keep, injected)
        log_ratio = difference(logp, behaviour)
        ratio = exp(limited(log_ratio))
        factor = None
        if sampler_ptr is not None:
            log = log_correction(sampler_ptr, behaviour, row, keep, keep, injected)
            factor = correction_factor(log, injected, lowest, highest, SAMPLER_MODE)
        kl = None
        kl_slope = None
        if ref_ptr is not None:
            kl, kl_slope = kl_estimate(ref_ptr, logp, row, keep, keep, KL)
        # 3. Clip or another surrogate: the loss, its slopes, and this row's share of the sums.
        loss, through_ratio, direct, below, above = token_loss(
            logp,
            advantage,
            scale,
            ratio,
            log_ratio,
            log_ratio,
            factor,
            kl,
            kl_slope,
            entropy if BONUS else None,
            beta,
            entropy_coef,
            p0,
            p1,
            p2,
            p3,
            SURROGATE,
            KL_WEIGHTED,
            True,
        )
        coef = through_ratio + direct
        if BONUS:
            coef_entropy = -tl.full([], entropy_coef, WIDE) * scale
        wide = ratio.to(tl.float64)
        store_partials(
            partials_ptr,
            row,
            tl.num_programs(0),
            kl if kl is not None else zero,
            below,
            above,
            wide,
            wide,
            wide * wide,
            entropy,
            coef != 0,
            keep,
            scale * loss,
        )
    else:
        sums = tl.arange(0, ROWS).to(tl.int64) * tl.num_programs(0) + row
        tl.store(partials_ptr + sums, tl.zeros([ROWS], tl.float64))

    # 4. Gradient sweep, backwards; a row without gradient is filled with 0 and not read again.
    active = (coef != 0) | (coef_entropy != 0)
    tl.store(active_ptr + row, active)
    if gradient_ptr is not None:
        gradient_ptr += batch * gradient_batch_stride + place * gradient_row_stride
        if active:
            # In place, a thread that writes must not overtake one that still reads its sums.
            tl.debug_barrier()
            per_temperature = tl.full([], inverse_temperature, WIDE)
            coef *= per_temperature
            coef_entropy *= per_temperature
            at_target = gradient_at_target(logp, coef, coef_entropy, entropy, BONUS, FAR)
            sides = (coef, coef_entropy, entropy, shift, lognorm, per_temperature)
            # AHEAD loads ahead of the arithmetic, as in sweep 1; of an odd number one block alone.
            ahead = _load_again(logits_ptr, FULL - 1, lane, column_stride, FULL > 0, BLOCK)
            after = ahead
            if AHEAD == 2:
                after = _load_again(logits_ptr, FULL - 2, lane, column_stride, FULL > 1, BLOCK)
            if TAIL > 0:
                inside = FULL * BLOCK + lane < VOCABULARY
                z = _load_again(logits_ptr, FULL, lane, column_stride, inside, BLOCK)
                _write_block(
                    gradient_ptr, FULL, lane, gradient_column_stride, inside, z, sides,
                    WIDE, BLOCK, BONUS, FAR,
                )  # fmt: skip
            ALONE: tl.constexpr = FULL % AHEAD
            if ALONE:
                _write_block(
                    gradient_ptr, FULL - 1, lane, gradient_column_stride, None, ahead, sides,
                    WIDE, BLOCK, BONUS, FAR,
                )  # fmt: skip
                ahead = after
                after = _load_again(logits_ptr, FULL - 3, lane, column_stride, FULL > 2, BLOCK)
            for step in tl.range(ALONE, FULL, AHEAD):
                block = FULL - 1 - step
                z = ahead
                next_block = block - AHEAD
                ahead = _load_again(
                    logits_ptr, next_block, lane, column_stride, next_block >= 0, BLOCK
                )
                _write_block(
                    gradient_ptr, block, lane, gradient_column_stride, None, z, sides,
                    WIDE, BLOCK, BONUS, FAR,
                )  # fmt: skip
                if AHEAD == 2:
                    z = after
                    after = _load_again(
                        logits_ptr, block - 3, lane, column_stride, block >= 3, BLOCK
                    )
                    _write_block(
                        gradient_ptr, block - 1, lane, gradient_column_stride, None, z, sides,
                        WIDE, BLOCK, BONUS, FAR,
                    )  # fmt: skip
            # 5. The target's own, over what the sweep left there.
            tl.debug_barrier()
            tl.store(
                gradient_ptr + target * gradient_column_stride,
                at_target.to(gradient_ptr.dtype.element_ty),
            )
        else:
            nothing = tl.zeros([LANES, VECTOR], gradient_ptr.dtype.element_ty)
            for block in tl.range(FULL):
                columns = block * BLOCK + lane
                tl.store(gradient_ptr + columns.to(tl.int64) * gradient_column_stride, nothing)
            if TAIL > 0:
                columns = FULL * BLOCK + lane
                tl.store(
                    gradient_ptr + columns.to(tl.int64) * gradient_column_stride,
                    nothing,
                    columns < VOCABULARY,
                )


# The upstream gradient of one loss of a stack begins anywhere.
@triton.jit(
    do_not_specialize=["rows", "rows_per_batch"], do_not_specialize_on_alignment=["factor_ptr"]
)
def policy_loss_from_logits_scale_kernel(
    gradient_ptr,
    active_ptr,
    factor_ptr,
    batch_stride,
    row_stride,
    column_stride,
    rows_per_batch,
    rows,
    VOCABULARY: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply the active rows by the upstream gradient; where it is 1 nothing is read."""
    factor = tl.load(factor_ptr)
    if factor != 1.0:
        row = tl.program_id(0).to(tl.int64)
        while row < rows:
            if tl.load(active_ptr + row) != 0:
                batch = row // rows_per_batch
                place = row % rows_per_batch
                row_ptr = gradient_ptr + batch * batch_stride + place * row_stride
                for block in tl.range(tl.cdiv(VOCABULARY, BLOCK)):
                    columns = block * BLOCK + tl.arange(0, BLOCK)
                    pointers = row_ptr + columns.to(tl.int64) * column_stride
                    inside = columns < VOCABULARY
                    values = tl.load(pointers, inside, other=0.0).to(WIDE) * factor
                    tl.store(pointers, values.to(gradient_ptr.dtype.element_ty), inside)
            row += tl.num_programs(0)
