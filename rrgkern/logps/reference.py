"""The definition in plain PyTorch: forward, and an explicit backward gradchecked against it."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps.online_softmax import FAR, softplus, stats_dtype


def forward(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """logits [N, V], targets [N] -> logps and entropy [N], differentiable by autograd.

    The target stays out of the logsumexp, see `row_stats`. fp32, or fp64 for fp64 logits.
    """
    z = _scaled(logits, temperature)
    column = targets[:, None]
    z_target = z.gather(1, column)[:, 0]
    others = z.scatter(1, column, -torch.inf)
    logps = -softplus(others.logsumexp(1) - z_target)
    log_p = z - (z_target - logps)[:, None]
    plogp = torch.where(log_p == -torch.inf, 0.0, log_p.exp() * log_p.clamp(min=-FAR))
    return logps, -plogp.sum(1)


def backward(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """Gradient [N, V] of sum(coef * logps + coef_entropy * entropy), in the dtype of logits.

    d logp / d z_j = (1[j = t] - p_j) / T, whose target entry is -expm1(logp): exact when p_t
    rounds to 1. d H / d z_j = -p_j (log p_j + H) / T. A row whose coefficients are both 0 has
    gradient 0 whatever its logits are.
    """
    logps, entropy = forward(logits, targets, temperature)
    z = _scaled(logits, temperature)
    column = targets[:, None]
    log_p = z - (z.gather(1, column)[:, 0] - logps)[:, None]
    p = log_p.exp()
    gradient = -coef[:, None] * p
    gradient.scatter_(1, column, (coef * -torch.expm1(logps))[:, None])
    active = coef != 0
    if coef_entropy is not None:
        excess = log_p.clamp(min=-FAR) + entropy[:, None]
        gradient = gradient - coef_entropy[:, None] * p * excess
        active = active | (coef_entropy != 0)
    return torch.where(active[:, None], gradient / temperature, 0.0).to(logits.dtype)


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """Logits over the temperature, less the row maximum: an offset costs no precision."""
    z = logits.to(stats_dtype(logits.dtype))
    top = z.detach().amax(1, keepdim=True)
    return (z - top.masked_fill(top == -torch.inf, 0.0)) / temperature
