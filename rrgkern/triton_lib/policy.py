"""One token's part in the policy loss; values are blocks of tokens or scalars.

The names and formulas are those of `policy_loss/terms.py` and `slopes.py`; a constexpr picks the
variant, the numbers that people tune stay run-time arguments.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.triton_lib.exact import (
    LOG_RATIO_LIMIT,
    difference,
    divided,
    exp,
    exp_beyond_linear,
    limited,
    sigmoid_pair,
)

CLIP = tl.constexpr(0)
CISPO = tl.constexpr(1)
SAPO = tl.constexpr(2)
REINFORCE = tl.constexpr(3)
VESPO = tl.constexpr(4)
GMPO = tl.constexpr(5)
# LUSPO is the clip at the sequence level.
SURROGATE_CODES = {
    **{"clip": 0, "luspo": 0, "cispo": 1, "sapo": 2, "reinforce": 3, "vespo": 4, "gmpo": 5}
}

# Arguments of a policy loss, a number a token or sequence. Accesses to them have 32 bits wherever
# they begin, and slices of a larger batch share one compilation.
POLICY_POINTERS = (
    *("logps_ptr", "targets_ptr", "advantages_ptr", "offsets_ptr", "scale_ptr", "old_ptr"),
    *("ref_ptr", "sampler_ptr", "weight_ptr", "entropy_ptr", "on_policy_ptr", "mask_ptr"),
)

TOKEN = tl.constexpr(0)
SEQUENCE = tl.constexpr(1)
SEQUENCE_TOKEN = tl.constexpr(2)
LEVEL_CODES = {"token": 0, "sequence": 1, "sequence_token": 2}

K1 = tl.constexpr(1)
K2 = tl.constexpr(2)
K3 = tl.constexpr(3)
KL_CODES = {"k1": 1, "k2": 2, "k3": 3}

TRUNCATE = tl.constexpr(0)
MASK = tl.constexpr(1)
MODE_CODES = {"truncate": 0, "mask": 1}

GEOMETRIC = tl.constexpr(2)
SAMPLER_CODES = {"token": 0, "sequence": 1, "geometric": 2}


@triton.jit
def scored_tokens(mask_ptr, token, inside):
    """Mark the lanes that hold a scored token."""
    keep = inside
    if mask_ptr is not None:
        keep = keep & (tl.load(mask_ptr + token, mask=inside, other=0) != 0)
    return keep


@triton.jit
def load_kept(values_ptr, where, inside, keep):
    """Values of the kept lanes, 0 elsewhere.

    Selected after the load: with one token's mask on one token's load, no access could be wide.
    """
    return tl.where(keep, tl.load(values_ptr + where, mask=inside, other=0.0), 0.0)


@triton.jit
def load_advantage(
    advantages_ptr, weight_ptr, token, sequence, inside, keep, PER_TOKEN: tl.constexpr
):
    """Advantage times token weight, 0 where nothing is kept."""
    where = token if PER_TOKEN else sequence + 0 * token
    advantage = load_kept(advantages_ptr, where, inside, keep)
    if weight_ptr is not None:
        advantage = advantage * load_kept(weight_ptr, token, inside, keep)
    return advantage


@triton.jit
def behaviour_logps(old_ptr, logps, token, inside, keep, injected):
    """Log-probabilities of the sampling policy: the policy itself where none is given."""
    behaviour = logps
    if old_ptr is not None:
        behaviour = tl.where(injected, logps, load_kept(old_ptr, token, inside, keep))
    return behaviour


@triton.jit
def log_correction(sampler_ptr, behaviour, token, inside, keep, injected):
    """old - sampler, 0 where the engine has no value or never saw the sequence."""
    log = difference(behaviour, load_kept(sampler_ptr, token, inside, keep))
    return tl.where((log != log) | injected | (keep == 0), 0.0, log)


@triton.jit
def correction_factor(log, injected, lowest, highest, MODE: tl.constexpr):
    """ρ from its logarithm: held within the bounds, or 0 outside them."""
    factor = exp(limited(log))
    low = tl.full((), lowest, factor.dtype)
    high = tl.full((), highest, factor.dtype)
    if MODE == TRUNCATE:
        factor = tl.where(factor < low, low, tl.where(factor > high, high, factor))
    else:
        factor = tl.where((factor < low) | (factor > high), 0.0, factor)
    return tl.where(injected, 1.0, factor)


@triton.jit
def surrogate(ratio, advantage, logps, log_weight, p0, p1, p2, p3, SURROGATE: tl.constexpr):
    """ℓ, ∂ℓ/∂r, ∂ℓ/∂logp at a fixed ratio, and what the clip removed below and above.

    p0 to p3 hold, by surrogate: lower bound, upper bound and cap ("clip", "cispo"), of the
    log-ratio of the token, `log_weight`, for "gmpo"; temperatures for positive and other advantages
    ("sapo"); k and λ for advantages >= 0, then below ("vespo").
    """
    a = tl.full((), p0, ratio.dtype)
    b = tl.full((), p1, ratio.dtype)
    below = tl.zeros(ratio.shape, tl.int1)
    above = tl.zeros(ratio.shape, tl.int1)
    ratio_slope = tl.zeros_like(ratio)
    logp_slope = tl.zeros_like(ratio)
    if SURROGATE == CLIP:
        cap = tl.full((), p2, ratio.dtype)
        below = (advantage < 0) & (ratio < a)
        above = (advantage > 0) & (ratio > b)
        capped = (advantage < 0) & (ratio > cap)
        used = tl.where(below, a, tl.where(above, b, tl.where(capped, cap, ratio)))
        above = above | capped
        loss = -used * advantage
        ratio_slope = tl.where(below | above, 0.0, -advantage)
    elif SURROGATE == GMPO:
        below = (advantage < 0) & (log_weight < a)
        above = (advantage > 0) & (log_weight > b)
        loss = -ratio * advantage
        ratio_slope = -advantage
    elif SURROGATE == SAPO:
        tau = tl.where(advantage > 0, a, b)
        gate, rest = sigmoid_pair(tau * (ratio - 1.0))
        loss = divided(-advantage * gate * 4.0, tau)
        ratio_slope = -advantage * 4.0 * gate * rest
    else:
        factor = advantage
        if SURROGATE == CISPO:
            below = (advantage != 0) & (ratio < a)
            above = (advantage != 0) & (ratio > b)
            factor = advantage * tl.where(ratio < a, a, tl.where(ratio > b, b, ratio))
        if SURROGATE == VESPO:
            k = tl.where(advantage >= 0, a, tl.full((), p2, ratio.dtype))
            lam = tl.where(advantage >= 0, b, tl.full((), p3, ratio.dtype))
            factor = advantage * exp(lam + k * log_weight - lam * exp(log_weight))
        logp_slope = -factor
        # A log-probability of -inf times an advantage of 0 is 0.
        loss = -factor * tl.where(factor == 0, 0.0, logps)
    return loss, ratio_slope, logp_slope, below, above


@triton.jit
def kl_estimate(ref_ptr, logps, token, inside, keep, KL: tl.constexpr):
    """Estimate of the divergence from the reference, and its derivative by logp."""
    log = difference(load_kept(ref_ptr, token, inside, keep), logps)
    x = limited(log)
    if KL == K1:
        kl = -x
        slope = tl.full(x.shape, 1.0, x.dtype)
    elif KL == K2:
        kl = 0.5 * x * x
        slope = -x
    else:
        rise, kl = exp_beyond_linear(x)
        slope = -rise
    kl = tl.where(keep, kl, 0.0)
    return kl, tl.where(tl.abs(log) > LOG_RATIO_LIMIT, 0.0, slope)


@triton.jit
def token_loss(
    logps,
    advantage,
    scale,
    ratio,
    log_ratio,
    log_weight,
    correction,
    kl,
    kl_slope,
    entropy,
    beta,
    entropy_coef,
    p0,
    p1,
    p2,
    p3,
    SURROGATE: tl.constexpr,
    KL_WEIGHTED: tl.constexpr,
    CLAMPED: tl.constexpr,
):
    """ℓ with KL and bonus, scale ∂ℓ/∂r dr/dlogp, scale ∂ℓ/∂logp, and what the clip removed.

    `correction`, `kl` and `entropy` are None where they take no part. `log_ratio` is the one that
    `ratio` was made of: where CLAMPED, dr/dlogp is 0 beyond the limit.
    """
    loss, per_ratio, per_logp, below, above = surrogate(
        ratio, advantage, logps, log_weight, p0, p1, p2, p3, SURROGATE
    )
    if correction is not None:
        loss *= correction
        per_ratio *= correction
        per_logp *= correction
    if kl is not None:
        weight_of_kl = tl.full((), beta, logps.dtype)
        if KL_WEIGHTED:
            loss += weight_of_kl * kl * ratio
            per_ratio += weight_of_kl * kl
            per_logp += weight_of_kl * kl_slope * ratio
        else:
            loss += weight_of_kl * kl
            per_logp += weight_of_kl * kl_slope
    if entropy is not None:
        loss -= tl.full((), entropy_coef, logps.dtype) * entropy
    moves = ratio
    if CLAMPED:
        moves = tl.where(tl.abs(log_ratio) > LOG_RATIO_LIMIT, 0.0, ratio)
    return loss, scale * per_ratio * moves, scale * per_logp, below, above
