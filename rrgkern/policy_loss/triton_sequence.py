"""First pass of the policy loss: one program a sequence, for variants that tie its tokens."""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.triton_lib.exact import LOG_RATIO_LIMIT, difference, exp, limited
from rrgkern.triton_lib.policy import (
    MASK,
    SEQUENCE,
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


@triton.jit
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
    """Of each sequence: mean log-ratio (or VESPO's log-weight), log-correction, pulled gradient.

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

    length = tl.maximum(tl.sum(count), 1).to(tl.float64)
    log_ratio = tl.sum(ratio_sum)
    log_correction_total = tl.sum(correction_sum).to(dtype)
    if SURROGATE == VESPO:
        log_ratio = limited(log_ratio)
        log_ratio = tl.where(log_ratio < VESPO_LOG_FLOOR, VESPO_LOG_FLOOR, log_ratio).to(dtype)
    else:
        log_ratio = (log_ratio / length).to(dtype)
    tl.store(log_ratio_ptr + sequence, log_ratio)
    tl.store(log_correction_ptr + sequence, log_correction_total)

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
