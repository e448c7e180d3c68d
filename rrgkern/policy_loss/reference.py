"""Compute the policy loss, its gradient and its metrics in plain PyTorch: the kernel's oracle."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrgkern.ops import pack
from rrgkern.policy_loss.inputs import LogpsInputs
from rrgkern.policy_loss.spec import PolicyLoss
from rrgkern.policy_loss.terms import LOG_RATIO_LIMIT, Terms, clip_bounds, sapo_tau, terms
from rrgkern.segments import sum_per_sequence

# The order of the metrics vector.
METRICS = (
    "kl",
    "clip_low",
    "clip_high",
    "ratio_mean",
    "ratio_max",
    "effective_sample_size",
    "entropy",
    "active_tokens",
    "tokens",
)


class LossOutputs(NamedTuple):
    """Results of `rrgkern::policy_loss_fwd`, all in the dtype of the log-probabilities."""

    loss: Tensor  # 0-d
    coef: Tensor  # [N] ∂loss/∂logps
    coef_entropy: Tensor  # [N] ∂loss/∂entropy, size 0 where the entropy is not in the loss
    metrics: Tensor  # in the order of METRICS


def policy_loss_reference(*inputs: Any) -> LossOutputs:
    """Loss, gradients and metrics in one go; the arguments are the fields of `LogpsInputs`."""
    logps, entropy, policy = pack(LogpsInputs, inputs)
    variant = policy.variant
    t = terms(logps, entropy, policy)
    loss = (t.scale * t.loss).double().sum().to(logps.dtype)
    coef = slopes(t, variant)
    coef_entropy = logps.new_empty(0)
    if entropy is not None and variant.entropy_coef:
        coef_entropy = torch.where(t.keep, -variant.entropy_coef * t.scale, 0.0)
    return LossOutputs(loss, coef, coef_entropy, _metrics(t, coef, variant))


def slopes(t: Terms, spec: PolicyLoss) -> Tensor:
    """coef [N] = ∂loss/∂logp, exactly 0 at masked positions.

    With s = scale, ρ the sampler correction and r the ratio of the token's level,

        coef_t = dr_t/dlogp_t · s (ρ ∂ℓ/∂r + β kl)  +  s (ρ ∂ℓ/∂logp + β r ∂kl/∂logp)

    where the β kl and the r beside ∂kl belong to the ratio-weighted KL. One ratio per sequence
    ties its tokens together: dr_i/dlogp_t = r_i / |o_i| for all of them, so the first product
    becomes the sum over the sequence of what stands behind dr/dlogp.
    """
    ratio_slope, direct_slope = _surrogate_slopes(t, spec)
    per_ratio = t.sampler_ratio * ratio_slope
    per_logp = t.sampler_ratio * direct_slope
    if spec.beta:
        kl_slope = spec.beta * _kl_slope(t.kl_log_ratio, spec.kl)
        if spec.kl_ratio_weight:
            per_ratio = per_ratio + spec.beta * t.kl
            kl_slope = kl_slope * t.ratio
        per_logp = per_logp + kl_slope

    moves = t.ratio
    if spec.ratio_level != "sequence_token":
        moves = torch.where(t.log_ratio.abs() > LOG_RATIO_LIMIT, 0.0, moves)
    through_ratio = t.scale * per_ratio * moves
    if spec.ratio_level == "sequence":
        shared = torch.where(t.token_gradient, 0.0, through_ratio)
        mean = sum_per_sequence(shared, t.sequence, t.length.numel()) / t.length.clamp(min=1)
        mean = mean.to(t.ratio.dtype)[t.sequence]
        if spec.surrogate == "gmpo":
            below, above = removed_by_clip(t, spec)
            mean = torch.where(below | above, 0.0, mean)
        through_ratio = torch.where(t.token_gradient, through_ratio, mean)
    return torch.where(t.keep, through_ratio + t.scale * per_logp, 0.0)


def removed_by_clip(t: Terms, spec: PolicyLoss) -> tuple[Tensor, Tensor]:
    """[N] bool twice: tokens whose gradient the clip removed, below and above.

    CISPO's clip bounds the weight and removes nothing: there it is the tokens whose weight it
    changed. A token without advantage has no gradient to lose.
    """
    low, high, cap = clip_bounds(spec)
    if spec.surrogate in ("clip", "luspo", "gmpo"):
        value = t.token_log_ratio if spec.surrogate == "gmpo" else t.ratio
        below = (t.advantage < 0) & (value < low)
        above = (t.advantage > 0) & (value > high)
        return below, above | ((t.advantage < 0) & (t.ratio > cap))
    if spec.surrogate == "cispo":
        return (t.advantage != 0) & (t.ratio < low), (t.advantage != 0) & (t.ratio > high)
    nothing = torch.zeros_like(t.keep)
    return nothing, nothing


def _surrogate_slopes(t: Terms, spec: PolicyLoss) -> tuple[Tensor, Tensor]:
    """∂ℓ/∂r and ∂ℓ/∂logp at a fixed ratio."""
    zero = torch.zeros_like(t.advantage)
    low, high, _ = clip_bounds(spec)
    if spec.surrogate == "gmpo":
        return -t.advantage, zero
    if spec.surrogate in ("clip", "luspo"):
        below, above = removed_by_clip(t, spec)
        return torch.where(below | above, 0.0, -t.advantage), zero
    if spec.surrogate == "sapo":
        x = sapo_tau(t.advantage, spec) * (t.ratio - 1)
        # σ(-x), not 1 - σ(x), which is 0 long before the slope is.
        return -t.advantage * 4 * torch.sigmoid(x) * torch.sigmoid(-x), zero
    if spec.surrogate == "cispo":
        return zero, -t.ratio.clamp(low, high) * t.advantage
    return zero, -t.gamma * t.advantage


def _kl_slope(kl_log_ratio: Tensor, estimator: str) -> Tensor:
    """∂kl/∂logp, with x = ref - logp: 0 where x is clamped."""
    x = kl_log_ratio
    if estimator == "k1":
        slope = torch.ones_like(x)
    elif estimator == "k2":
        slope = -x
    else:
        slope = -torch.expm1(x)
    return torch.where(x.abs() > LOG_RATIO_LIMIT, 0.0, slope)


def _metrics(t: Terms, coef: Tensor, spec: PolicyLoss) -> Tensor:
    """[len(METRICS)]; all 0 for a batch without scored tokens."""

    def total(values: Tensor) -> Tensor:
        return torch.where(t.keep, values.double(), 0.0).sum()

    below, above = removed_by_clip(t, spec)
    tokens = total(t.keep)
    ratio_sum, ratio_squares = total(t.ratio), total(t.ratio.double().square())
    # The smallest ratio is exp(-20): 0 shows only when no token is scored.
    largest = torch.cat([torch.where(t.keep, t.ratio, 0.0), t.ratio.new_zeros(1)]).amax()
    some = tokens.clamp(min=1)
    values = (
        total(t.kl) / some,
        total(below) / some,
        total(above) / some,
        ratio_sum / some,
        largest.double(),
        ratio_sum.square() / (some * torch.where(tokens > 0, ratio_squares, 1.0)),
        total(t.entropy) / some,
        total(coef != 0),
        tokens,
    )
    return torch.stack(values).to(coef.dtype)
