"""TRL's own `GRPOTrainer._compute_loss`, called on given log-probabilities instead of a model's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.parity.padded import Padded, Result, peer

compute_loss = peer("bench.peers.trl").compute_loss


def trl(
    data: Padded,
    loss_type: str,
    level: str,
    *,
    beta: float = 0.0,
    epsilon: tuple[float, float] = (0.2, 0.2),
    sampler: tuple[str, str] | None = None,
    sampler_bounds: tuple[float | None, float | None] = (None, None),
    on_policy: bool = False,
    total_tokens: int | None = None,
    world_size: int = 1,
    entropy_coef: float = 0.0,
    **arguments: Any,
) -> Result:
    """Loss, gradient and logged metrics of TRL; `arguments` as in its GRPOConfig."""
    logps = data.logps.clone().requires_grad_()
    inputs = {
        "ref_per_token_logps": data.ref,
        "num_items_in_batch": torch.tensor(float(total_tokens or data.tokens)),
    }
    if not on_policy:
        inputs["old_per_token_logps"] = data.old
    if sampler is not None:
        inputs["importance_sampling_ratio"] = sampler_ratio(data, *sampler, sampler_bounds)
    loss, metrics = compute_loss(
        logps,
        data.entropy,
        data.mask,
        data.advantages,
        inputs,
        loss_type=loss_type,
        importance_sampling_level=level,
        beta=beta,
        epsilon_low=epsilon[0],
        epsilon_high=epsilon[1],
        entropy_coef=entropy_coef,
        use_vllm=sampler is not None,
        world_size=world_size,
        arguments=arguments,
    )
    (gradient,) = torch.autograd.grad(loss, logps)
    logged = {name: values[-1] for name, values in metrics.items()}
    return Result(loss.detach(), gradient, logged)


def sampler_ratio(
    data: Padded, level: str, mode: str, bounds: tuple[float | None, float | None]
) -> Tensor:
    """The factor that TRL forms while it generates, from what the rollout engine reported."""
    difference = ((data.old - data.sampler) * data.mask).nan_to_num(nan=0.0)
    if level == "sequence":
        difference = difference.sum(-1, keepdim=True)
    ratio = difference.exp()
    low, high = bounds
    if mode == "truncate":
        return ratio.clamp(min=low, max=high)
    outside = torch.zeros_like(ratio, dtype=torch.bool)
    if low is not None:
        outside |= ratio < low
    if high is not None:
        outside |= ratio > high
    return ratio.masked_fill(outside, 0.0)
