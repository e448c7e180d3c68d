"""Define every variant of the policy loss, token by token, in plain PyTorch.

Differentiable: autograd of `(t.scale * t.loss).sum()` is the gradient that
`reference.slopes` gives in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rrgkern.policy_loss.inputs import PolicyInputs
from rrgkern.policy_loss.spec import PolicyLoss
from rrgkern.segments import sequence_of_token, sum_per_sequence

# Beyond 20 nats a ratio says only that the two policies have nothing to do with each other; its
# exponential still fits fp32 with room for the square that the effective sample size needs.
LOG_RATIO_LIMIT = 20.0
# TRL keeps VESPO's log-weights above log(1e-8).
VESPO_LOG_FLOOR = math.log(1e-8)


@dataclass
class Terms:
    """Everything about each token that the loss, its gradient and the metrics are made of.

    Every field is [N] unless said; masked positions hold harmless numbers, never the input's.
    """

    keep: Tensor  # bool, a scored token
    sequence: Tensor  # int64
    length: Tensor  # [S], scored tokens
    token_gradient: Tensor  # bool, the ratio's gradient is the token's own, not through the mean
    logps: Tensor
    advantage: Tensor  # times the token weight
    scale: Tensor
    token_log_ratio: Tensor  # of the token itself, not clipped
    log_ratio: Tensor  # at the ratio level, before the clamp
    ratio: Tensor
    sampler_ratio: Tensor  # ρ, detached, held within its bounds
    kl_log_ratio: Tensor  # ref - logp before the clamp
    kl: Tensor
    gamma: Tensor  # φ of VESPO, detached; 1 for other surrogates
    entropy: Tensor
    loss: Tensor  # ℓ_t, not yet scaled


def terms(logps: Tensor, entropy: Tensor | None, policy: PolicyInputs) -> Terms:
    """The token losses and their parts, differentiable in `logps` and `entropy` [N]."""
    spec, mask, n_sequences = policy.variant, policy.mask, policy.offsets.numel() - 1
    sequence = sequence_of_token(policy.offsets, logps.numel())
    keep = torch.ones_like(logps, dtype=torch.bool) if mask is None else mask

    def clean(values: Tensor, per_token: bool = True) -> Tensor:
        # Selected, never multiplied: a NaN at a masked position must vanish.
        return torch.where(keep, values if per_token else values[sequence], 0.0)

    logps = clean(logps)
    advantage = clean(policy.advantages, policy.advantage_per_token)
    if policy.token_weight is not None:
        advantage = advantage * clean(policy.token_weight)

    # An on-policy sequence behaves as if the policy itself had sampled it: old = sg[logp].
    on_policy = torch.zeros_like(keep)
    if policy.on_policy is not None:
        on_policy = policy.on_policy[sequence]
    old_logps = logps.detach()
    if policy.old is not None:
        old_logps = torch.where(on_policy, old_logps, clean(policy.old))
    length = sum_per_sequence(keep, sequence, n_sequences)
    engine = None if policy.sampler is None else clean(policy.sampler)
    sampler_ratio, log_sampler_ratio = _sampler_ratio(
        old_logps, engine, on_policy, sequence, length, spec
    )

    log_ratio = _difference(logps, old_logps)
    token_log_ratio = log_ratio
    if spec.surrogate == "gmpo":
        low, high, _ = clip_bounds(spec)
        log_ratio = torch.where(advantage > 0, log_ratio.clamp(max=high), log_ratio)
        log_ratio = torch.where(advantage < 0, log_ratio.clamp(min=low), log_ratio)
    if spec.ratio_level != "token":
        mean = sum_per_sequence(log_ratio, sequence, n_sequences) / length.clamp(min=1)
        log_ratio = torch.where(on_policy, log_ratio, mean.to(logps.dtype)[sequence])
    ratio = _limited(log_ratio).exp()
    token_gradient = on_policy
    if spec.ratio_level == "sequence_token":
        # The value is the sequence's, the gradient each token's: sg[r] * exp(logp - sg[logp]).
        ratio = ratio.detach() * _difference(logps, logps.detach()).exp()
        log_ratio = log_ratio.detach()
    if spec.ratio_level != "sequence":
        token_gradient = torch.ones_like(keep)

    kl_log_ratio = torch.zeros_like(logps)
    if policy.ref is not None:
        kl_log_ratio = _difference(clean(policy.ref), logps)
    kl = _kl(_limited(kl_log_ratio), spec.kl)
    gamma = torch.ones_like(logps)
    if spec.surrogate == "vespo":
        log_weights = token_log_ratio.detach(), clean(log_sampler_ratio)
        gamma = _vespo_gamma(*log_weights, advantage, sequence, n_sequences, spec)
        sampler_ratio = torch.ones_like(sampler_ratio)  # it is inside φ

    loss = sampler_ratio * _surrogate(ratio, advantage, logps, gamma, spec)
    if spec.beta:
        loss = loss + spec.beta * (kl * ratio if spec.kl_ratio_weight else kl)
    entropy = torch.zeros_like(logps) if entropy is None else clean(entropy)
    if spec.entropy_coef:
        loss = loss - spec.entropy_coef * entropy
    return Terms(
        keep=keep,
        sequence=sequence,
        length=length,
        token_gradient=token_gradient,
        logps=logps,
        advantage=advantage,
        scale=clean(policy.scale, policy.scale_per_token),
        token_log_ratio=token_log_ratio,
        log_ratio=log_ratio,
        ratio=ratio,
        sampler_ratio=sampler_ratio,
        kl_log_ratio=kl_log_ratio,
        kl=kl,
        gamma=gamma,
        entropy=entropy,
        loss=torch.where(keep, loss, 0.0),
    )


def clip_bounds(spec: PolicyLoss) -> tuple[float, float, float]:
    """Bounds of ratio, or GMPO's log-ratio, and cap for A < 0, or ±inf."""
    center = 0.0 if spec.surrogate == "gmpo" else 1.0
    low = -math.inf if spec.eps_low is None else center - spec.eps_low
    return low, center + spec.eps_high, math.inf if spec.dual_clip is None else spec.dual_clip


def surrogate_numbers(spec: PolicyLoss) -> tuple[float, float, float, float]:
    """Numbers of the surrogate, in the order in which the kernels take them."""
    if spec.surrogate == "sapo":
        return spec.sapo_tau_pos, spec.sapo_tau_neg, 0.0, 0.0
    if spec.surrogate == "vespo":
        return (spec.vespo_k_pos, spec.vespo_lambda_pos, spec.vespo_k_neg, spec.vespo_lambda_neg)
    return (*clip_bounds(spec), 0.0)


def sampler_bounds(spec: PolicyLoss) -> tuple[float, float]:
    """The least and the largest correction, infinite where there is no bound."""
    low = -math.inf if spec.sampler_min is None else spec.sampler_min
    return low, math.inf if spec.sampler_max is None else spec.sampler_max


def sapo_tau(advantage: Tensor, spec: PolicyLoss) -> Tensor:
    """[N] SAPO's temperature, by the sign of the advantage."""
    return _choose(advantage > 0, spec.sapo_tau_pos, spec.sapo_tau_neg, advantage)


def _choose(where: Tensor, yes: float, no: float, like: Tensor) -> Tensor:
    # `where` on two numbers would round them to fp32 also when the loss is fp64.
    return torch.where(where, like.new_full((), yes), like.new_full((), no))


def _difference(left: Tensor, right: Tensor) -> Tensor:
    """left - right, and 0 where both are the same infinity."""
    same = left.isinf() & (left == right)
    return torch.where(same, 0.0, left) - torch.where(same, 0.0, right)


def _limited(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _surrogate(
    ratio: Tensor, advantage: Tensor, logps: Tensor, gamma: Tensor, spec: PolicyLoss
) -> Tensor:
    low, high, cap = clip_bounds(spec)
    if spec.surrogate == "gmpo":
        return -ratio * advantage
    if spec.surrogate in ("clip", "luspo"):
        capped = torch.where(advantage < 0, ratio.clamp(max=cap), ratio)
        return -torch.minimum(capped * advantage, ratio.clamp(low, high) * advantage)
    if spec.surrogate == "sapo":
        tau = sapo_tau(advantage, spec)
        return -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    factor = advantage
    if spec.surrogate == "cispo":
        factor = ratio.detach().clamp(low, high) * advantage
    if spec.surrogate == "vespo":
        factor = gamma * advantage
    # A log-probability of -inf times an advantage of 0 is 0.
    return -factor * torch.where(factor == 0, 0.0, logps)


def _kl(x: Tensor, estimator: str) -> Tensor:
    if estimator == "k1":
        return -x
    if estimator == "k2":
        return 0.5 * x.square()
    return torch.expm1(x) - x


def _sampler_ratio(
    old_logps: Tensor,
    sampler: Tensor | None,
    on_policy: Tensor,
    sequence: Tensor,
    length: Tensor,
    spec: PolicyLoss,
) -> tuple[Tensor, Tensor]:
    """ρ, detached, and its logarithm (-inf where a token is masked out)."""
    if sampler is None:
        return torch.ones_like(old_logps), torch.zeros_like(old_logps)
    log = _difference(old_logps, sampler)
    # NaN: the engine has no value for this token. An on-policy sequence never went through it.
    log = torch.where(log.isnan() | on_policy, 0.0, log)
    if spec.sampler_level != "token":
        total = sum_per_sequence(log, sequence, length.numel())
        total = total / length.clamp(min=1) if spec.sampler_level == "geometric" else total
        log = total.to(log.dtype)[sequence]
    factor = _limited(log).exp()
    low, high = sampler_bounds(spec)
    if spec.sampler_mode == "truncate":
        factor = factor.clamp(low, high)
    else:
        factor = torch.where((factor < low) | (factor > high), 0.0, factor)
    factor = torch.where(on_policy, 1.0, factor)
    return factor, factor.log()


def _vespo_gamma(
    log_ratio: Tensor,
    log_sampler_ratio: Tensor,
    advantage: Tensor,
    sequence: Tensor,
    n_sequences: int,
    spec: PolicyLoss,
) -> Tensor:
    """φ(w) = e^λ w^k e^(-λw) of the sequence's weight w, k and λ by the sign of the advantage."""
    log_weight = _limited(log_ratio) + log_sampler_ratio.clamp(VESPO_LOG_FLOOR, LOG_RATIO_LIMIT)
    total = sum_per_sequence(log_weight, sequence, n_sequences).to(log_ratio.dtype)
    log_weight = total.clamp(VESPO_LOG_FLOOR, LOG_RATIO_LIMIT)[sequence]
    up = advantage >= 0
    k = _choose(up, spec.vespo_k_pos, spec.vespo_k_neg, log_ratio)
    lam = _choose(up, spec.vespo_lambda_pos, spec.vespo_lambda_neg, log_ratio)
    return (lam + k * log_weight - lam * log_weight.exp()).exp()
