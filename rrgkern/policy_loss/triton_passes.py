"""Compute the policy loss in two Triton passes: the sequences, then the tokens.

The first runs only for variants that tie the tokens of a sequence, one program a sequence; the
second turns a block of tokens into its gradient, and adds what it contributes to the sums.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.triton_lib.exact import LOG_RATIO_LIMIT, difference, exp, limited
from rrgkern.triton_lib.policy import (
    GEOMETRIC,
    GMPO,
    MASK,
    POLICY_POINTERS,
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
    token_loss,
)
from rrgkern.triton_lib.policy_sums import store_partials

# TRL keeps VESPO's log-weights above log(1e-8).
VESPO_LOG_FLOOR = tl.constexpr(-18.420680743952367)


@triton.jit
def _vespo_log_correction(log, injected, log_lowest, log_highest, MODE: tl.constexpr):
    """Logarithm of ρ, no smaller than VESPO's floor."""
    low = tl.full((), log_lowest, log.dtype)
    high = tl.full((), log_highest, log.dtype)
    log = limited(log)
    if MODE == MASK:
        log = tl.where((log < low) | (log > high), VESPO_LOG_FLOOR, log)
    else:
        log = tl.where(log < low, low, tl.where(log > high, high, log))
    log = tl.where(log < VESPO_LOG_FLOOR, VESPO_LOG_FLOOR, log)
    return tl.where(injected, 0.0, log)


@triton.jit(do_not_specialize_on_alignment=POLICY_POINTERS)
def policy_loss_sequence_kernel(
    logps_ptr,
    advantages_ptr,
    offsets_ptr,
    scale_ptr,
    old_ptr,
    ref_ptr,
    sampler_ptr,
    weight_ptr,
    on_policy_ptr,
    mask_ptr,
    log_ratio_ptr,
    log_correction_ptr,
    pulled_ptr,
    beta: tl.float64,
    lowest: tl.float64,
    highest: tl.float64,
    log_lowest: tl.float64,
    log_highest: tl.float64,
    p0: tl.float64,
    p1: tl.float64,
    p2: tl.float64,
    p3: tl.float64,
    SURROGATE: tl.constexpr,
    LEVEL: tl.constexpr,
    KL: tl.constexpr,
    KL_IN_RATIO: tl.constexpr,
    SAMPLER_PER_SEQUENCE: tl.constexpr,
    SAMPLER_MODE: tl.constexpr,
    ADVANTAGE_PER_TOKEN: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Reduce each sequence to its log-ratio or VESPO log-weight, log-correction, pulled gradient.

    The pulled gradient is what every token of a sequence gets through its one ratio:
    sum of scale (ρ ∂ℓ/∂r + β kl) over the sequence, times r / |o|. Sums run in fp64 and in a fixed
    order.
    """
    dtype = logps_ptr.dtype.element_ty
    sequence = tl.program_id(0).to(tl.int64)
    start = tl.load(offsets_ptr + sequence)
    end = tl.load(offsets_ptr + sequence + 1)
    injected = tl.zeros([BLOCK], tl.int1)
    if on_policy_ptr is not None:
        injected = injected | (tl.load(on_policy_ptr + sequence) != 0)

    # 1. Sums over the tokens: log-ratios, log-corrections, how many are scored.
    lane = tl.arange(0, BLOCK)
    ratio_sum = tl.zeros([BLOCK], tl.float64)
    correction_sum = tl.zeros([BLOCK], tl.float64)
    count = tl.zeros([BLOCK], tl.int64)
    first = start
    while first < end:
        token = first + lane
        inside = token < end
        keep = scored_tokens(mask_ptr, token, inside)
        logps = load_kept(logps_ptr, token, inside, keep)
        behaviour = behaviour_logps(old_ptr, logps, token, inside, keep, injected)
        log_ratio = difference(logps, behaviour)
        if SURROGATE == GMPO:
            advantage = load_advantage(
                advantages_ptr, weight_ptr, token, sequence, inside, keep, ADVANTAGE_PER_TOKEN
            )
            low, high = tl.full((), p0, dtype), tl.full((), p1, dtype)
            log_ratio = tl.where((advantage < 0) & (log_ratio < low), low, log_ratio)
            log_ratio = tl.where((advantage > 0) & (log_ratio > high), high, log_ratio)
        if SURROGATE == VESPO:
            log_ratio = limited(log_ratio)
        if sampler_ptr is not None:
            log = log_correction(sampler_ptr, behaviour, token, inside, keep, injected)
            if SURROGATE == VESPO:
                held = _vespo_log_correction(log, injected, log_lowest, log_highest, SAMPLER_MODE)
                log_ratio += tl.where(keep, held, 0.0)
            correction_sum += log.to(tl.float64)
        ratio_sum += log_ratio.to(tl.float64)
        count += keep.to(tl.int64)
        first += BLOCK

    # 2. The sequence's own log-ratio: their mean, or VESPO's log-weight.
    length = tl.maximum(tl.sum(count), 1).to(tl.float64)
    log_ratio = tl.sum(ratio_sum)
    log_correction_total = tl.sum(correction_sum)
    if SAMPLER_PER_SEQUENCE == GEOMETRIC:
        log_correction_total /= length
    log_correction_total = log_correction_total.to(dtype)
    if SURROGATE == VESPO:
        log_ratio = limited(log_ratio)
        log_ratio = tl.where(log_ratio < VESPO_LOG_FLOOR, VESPO_LOG_FLOOR, log_ratio).to(dtype)
    else:
        log_ratio = (log_ratio / length).to(dtype)
    tl.store(log_ratio_ptr + sequence, log_ratio)
    tl.store(log_correction_ptr + sequence, log_correction_total)

    # 3. The gradient through that one ratio, summed over the tokens that share it.
    if LEVEL == SEQUENCE:
        ratio = exp(limited(log_ratio + tl.zeros([BLOCK], dtype)))
        beta_here = tl.full((), beta, dtype)
        pull = tl.zeros([BLOCK], tl.float64)
        first = start
        while first < end:
            token = first + lane
            inside = token < end
            keep = scored_tokens(mask_ptr, token, inside)
            logps = load_kept(logps_ptr, token, inside, keep)
            advantage = load_advantage(
                advantages_ptr, weight_ptr, token, sequence, inside, keep, ADVANTAGE_PER_TOKEN
            )
            _, per_ratio, _, _, _ = surrogate(
                ratio, advantage, logps, logps, p0, p1, p2, p3, SURROGATE
            )
            if sampler_ptr is not None:
                log = log_correction_total + tl.zeros([BLOCK], dtype)
                if not SAMPLER_PER_SEQUENCE:
                    behaviour = behaviour_logps(old_ptr, logps, token, inside, keep, injected)
                    log = log_correction(sampler_ptr, behaviour, token, inside, keep, injected)
                per_ratio *= correction_factor(log, injected, lowest, highest, SAMPLER_MODE)
            if KL_IN_RATIO:
                kl, _ = kl_estimate(ref_ptr, logps, token, inside, keep, KL)
                per_ratio += beta_here * kl
            where = token if SCALE_PER_TOKEN else sequence + 0 * token
            scale = load_kept(scale_ptr, where, inside, keep)
            pull += tl.where(keep, scale * per_ratio * ratio, 0.0).to(tl.float64)
            first += BLOCK
        pulled = (tl.sum(pull) / length).to(dtype)
        pulled = tl.where(tl.abs(log_ratio) > LOG_RATIO_LIMIT, 0.0, pulled)
        tl.store(pulled_ptr + sequence, pulled)


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


@triton.jit(
    do_not_specialize=["n_tokens", "n_sequences", "halvings"],
    do_not_specialize_on_alignment=POLICY_POINTERS,
)
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

    # 1. The tokens, their sequences and advantages.
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

    # 2. Ratio of the token or of its sequence, sampler correction, KL and entropy.
    behaviour = behaviour_logps(old_ptr, logps, token, inside, keep, injected)
    log_ratio = difference(logps, behaviour)
    log_weight = log_ratio
    if SURROGATE == VESPO:
        log_weight = load_kept(log_ratio_ptr, sequence, inside, keep)
    if LEVEL != TOKEN:
        mean = load_kept(log_ratio_ptr, sequence, inside, keep)
        log_ratio = tl.where(injected, log_ratio, mean)
    ratio = exp(limited(log_ratio))

    factor = None
    if sampler_ptr is not None and SURROGATE != VESPO:
        if SAMPLER_PER_SEQUENCE:
            log = load_kept(log_correction_ptr, sequence, inside, keep)
        else:
            log = log_correction(sampler_ptr, behaviour, token, inside, keep, injected)
        factor = correction_factor(log, injected, lowest, highest, SAMPLER_MODE)
    kl = None
    kl_slope = None
    if ref_ptr is not None:
        kl, kl_slope = kl_estimate(ref_ptr, logps, token, inside, keep, KL)
    entropy = None
    if entropy_ptr is not None:
        entropy = load_kept(entropy_ptr, token, inside, keep)
        if coef_entropy_ptr is not None:
            bonus = tl.full((), entropy_coef, dtype)
            tl.store(coef_entropy_ptr + token, tl.where(keep, -bonus * scale, 0.0), mask=inside)

    # 3. Clip or another surrogate: the loss and its slopes.
    loss, through_ratio, direct, below, above = token_loss(
        logps,
        advantage,
        scale,
        ratio,
        log_ratio,
        log_weight,
        factor,
        kl,
        kl_slope,
        entropy,
        beta,
        entropy_coef,
        p0,
        p1,
        p2,
        p3,
        SURROGATE,
        KL_WEIGHTED,
        LEVEL != SEQUENCE_TOKEN,
    )
    if LEVEL == SEQUENCE:
        pulled = load_kept(pulled_ptr, sequence, inside, keep)
        if SURROGATE == GMPO:
            pulled = tl.where(below | above, 0.0, pulled)
        through_ratio = tl.where(injected, through_ratio, pulled)
    coef = tl.where(keep, through_ratio + direct, 0.0)
    tl.store(coef_ptr + token, coef, mask=inside)

    # 4. The block's share of the sums.
    nothing = tl.zeros([BLOCK], dtype)
    wide = tl.where(keep, ratio, 0.0).to(tl.float64)
    store_partials(
        partials_ptr,
        block,
        tl.num_programs(0),
        tl.sum((kl if kl is not None else nothing).to(tl.float64)),
        tl.sum((below & keep).to(tl.int32)),
        tl.sum((above & keep).to(tl.int32)),
        tl.sum(wide),
        tl.max(wide),
        tl.sum(wide * wide),
        tl.sum((entropy if entropy is not None else nothing).to(tl.float64)),
        tl.sum((coef != 0).to(tl.int32)),
        tl.sum(keep.to(tl.int32)),
        tl.sum(tl.where(keep, scale * loss, 0.0).to(tl.float64)),
    )
