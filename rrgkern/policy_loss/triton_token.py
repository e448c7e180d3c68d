"""Second pass of the policy loss: the tokens, and what each block of them adds to the sums."""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.triton_lib.exact import difference, exp, limited
from rrgkern.triton_lib.policy import (
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
    token_loss,
)
from rrgkern.triton_lib.policy_sums import store_partials


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


@triton.jit(do_not_specialize=["n_tokens", "n_sequences", "halvings"])
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
        through_ratio = tl.where(injected, through_ratio, pulled)
    coef = tl.where(keep, through_ratio + direct, 0.0)
    tl.store(coef_ptr + token, coef, mask=inside)

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
