"""The optimiser and its learning-rate schedule."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from rrgtrain.errors import NotFinite, UserError
from rrgtrain.schema import Rl


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


def optimizer_of(model: torch.nn.Module, settings: Rl) -> torch.optim.Optimizer:
    """The optimiser that the section `rl` names; UserError where its package is not installed."""
    betas = (settings.beta1, settings.beta2)
    if settings.optimizer == "adamw":
        return adamw(model, settings.lr, settings.weight_decay, betas)
    require_8bit()
    from bitsandbytes.optim import AdamW8bit

    _try_8bit(next(model.parameters()).device)
    groups = adamw(model, settings.lr, settings.weight_decay, betas).param_groups
    return AdamW8bit(
        [{"params": g["params"], "weight_decay": g["weight_decay"]} for g in groups],
        lr=settings.lr,
        betas=betas,
    )


def require_8bit() -> None:
    """UserError without bitsandbytes."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UserError(
            "rl.optimizer=adamw_8bit needs the package bitsandbytes; pip install bitsandbytes, "
            "or use rl.optimizer=adamw"
        )


def _try_8bit(device: torch.device) -> None:
    """UserError where the installed bitsandbytes has no 8-bit AdamW for the device."""
    import bitsandbytes

    # smaller tensors are kept in 32 bits
    weight = torch.nn.Parameter(torch.zeros(64, 64, device=device))
    weight.grad = torch.zeros_like(weight)
    try:
        bitsandbytes.optim.AdamW8bit([weight], lr=0.0).step()
    except Exception as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UserError(
            f"rl.optimizer=adamw_8bit: bitsandbytes {bitsandbytes.__version__} cannot run on "
            f"{device.type} ({reason[0]}); pip install -U bitsandbytes (0.50.2 runs on a CPU), or "
            "use rl.optimizer=adamw"
        ) from error


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
    changing: Callable[[], None] = lambda: None,
) -> float:
    """Clips, steps, clears the gradients; returns the gradient norm before clipping.

    `changing` is called right before the first weight changes. Raises NotFinite, and changes
    none, when the norm is not finite.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr
    limit = clip if clip > 0 else float("inf")
    norm: Any = torch.nn.utils.clip_grad_norm_(list(parameters), limit)
    if hasattr(norm, "full_tensor"):  # of sharded gradients (FSDP2)
        norm = norm.full_tensor()
    if not torch.isfinite(norm):
        raise NotFinite(
            f"the norm of the gradient is {norm.item()}; lower the learning rate (sft.lr, rl.lr)"
        )
    changing()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(norm)
