"""The optimiser and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from rrgtrain.errors import NotFinite


def adamw(
    model: torch.nn.Module,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.AdamW:
    """AdamW on the trainable parameters; vectors (norms, biases) are not decayed."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas)


def learning_rate(step: int, steps: int, peak: float, warmup: int, schedule: str) -> float:
    """The rate of `step` (counted from 0): linear warm-up, then constant or half a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


def apply_step(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[torch.nn.Parameter],
    lr: float,
    clip: float,
) -> float:
    """Clips, steps, clears the gradients; returns the gradient norm before clipping.

    Raises NotFinite, and changes no weight, when that norm is not finite.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr
    limit = clip if clip > 0 else float("inf")
    norm = torch.nn.utils.clip_grad_norm_(list(parameters), limit)
    if not torch.isfinite(norm):
        raise NotFinite(
            f"the norm of the gradient is {norm.item()}; lower the learning rate (sft.lr, rl.lr)"
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(norm)
