"""Define log-probabilities and their gradients in plain PyTorch, each backward written out."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps.inputs import FromLogits, FromLogitsBackward, check_targets
from rrgkern.logps.online_softmax import FAR, Coefficients, SoftmaxStats, softplus, stats_dtype


def token_logps_reference(
    logits: Tensor, targets: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """logits [N, V], targets [N] -> logps and entropy [N], differentiable by autograd.

    The target stays out of the logsumexp, see `online_softmax`. fp32, or fp64 for fp64 logits.
    """
    z = _scaled(logits, temperature)
    z_target, others = _target_and_others(z, targets)
    logps = -softplus(others - z_target)
    log_p = _log_softmax(z, z_target, others, logps)
    plogp = torch.where(log_p == -torch.inf, 0.0, log_p.exp() * log_p.clamp(min=-FAR))
    return logps, -plogp.sum(1)


def token_logps_reference_backward(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """Gradient [N, V] of sum(coef * logps + coef_entropy * entropy), as the logits.

    d logp / d z_j = (1[j = t] - p_j) / T, whose target entry is -expm1(logp): exact when p_t
    rounds to 1. d H / d z_j = -p_j (log p_j + H) / T. A row whose coefficients are both 0 has
    gradient 0 whatever its logits are.
    """
    logps, entropy = token_logps_reference(logits, targets, temperature)
    z = _scaled(logits, temperature)
    column = targets[:, None]
    log_p = _log_softmax(z, *_target_and_others(z, targets), logps)
    p = log_p.exp()
    gradient = -coef[:, None] * p
    gradient.scatter_(1, column, (coef * -torch.expm1(logps))[:, None])
    if coef_entropy is not None:
        excess = log_p.clamp(min=-FAR) + entropy[:, None]
        gradient = gradient - coef_entropy[:, None] * p * excess
    active = Coefficients(coef, coef_entropy).active()
    return torch.where(active[:, None], gradient / temperature, 0.0).to(logits.dtype)


def softmax_stats_reference(x: FromLogits) -> SoftmaxStats:
    """Compute results and what the backward needs of each row of logits."""
    logits, targets = x.logits.reshape(len(x.targets), x.logits.shape[-1]), x.targets
    check_targets(targets, logits.shape[1], x.keep)
    if x.keep is not None:
        logits, targets = logits[x.keep], targets[x.keep]
    logps, entropy = token_logps_reference(logits, targets, x.temperature)
    lognorm = _scaled(logits, x.temperature).logsumexp(1)
    shift = logits.to(lognorm.dtype).amax(1)
    stats = SoftmaxStats(logps, entropy if x.entropy else entropy.new_empty(0), shift, lognorm)
    if x.keep is None:
        return stats
    return stats.scattered(x.keep.nonzero()[:, 0], len(x.keep), x.entropy)


def softmax_backward_reference(x: FromLogitsBackward) -> Tensor:
    """Gradient of the logits, in their shape."""
    logits = x.logits.reshape(len(x.targets), x.logits.shape[-1])
    # A target of a row without gradient may be none.
    targets = torch.where(x.coefficients.active(), x.targets, 0)
    gradient = token_logps_reference_backward(*x.coefficients, logits, targets, x.temperature)
    return gradient.reshape(x.logits.shape)


def _target_and_others(z: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's target logit, and the logsumexp of all others."""
    column = targets[:, None]
    return z.gather(1, column)[:, 0], z.scatter(1, column, -torch.inf).logsumexp(1)


def _log_softmax(z: Tensor, z_target: Tensor, others: Tensor, logps: Tensor) -> Tensor:
    # From the target, which keeps its digits, unless it has probability 0.
    log_norm = torch.where(z_target == -torch.inf, others, z_target - logps)
    return z - log_norm[:, None]


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """Logits over the temperature, less the row maximum: an offset costs no precision."""
    z = logits.to(stats_dtype(logits.dtype))
    top = z.detach().amax(1, keepdim=True)
    return (z - top.masked_fill(top == -torch.inf, 0.0)) / temperature
