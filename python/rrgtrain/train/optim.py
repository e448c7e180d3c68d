"""The optimiser and its learning-rate schedule."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rrgpolicy.ranks import ranks
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.schema import RlSettings, SftSettings
from rrgtrain.state.tree import PerRank


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
    # several tensors at a time would take as much memory again as the shards
    several = False if any(map(_is_sharded, trainable)) else None
    given = [g for g in groups if g["params"]]
    return ShardwiseAdamW(given, lr=lr, betas=betas, foreach=several)


class ShardwiseAdamW(torch.optim.AdamW):
    """AdamW that computes on this rank's shards of parameters that are DTensors.

    Its arithmetic is element by element, so the result is that of the whole tensors; each operation
    on a DTensor would go through Python. Moments stay DTensors.
    """

    def _init_group(self, group: dict[str, Any], *tensors: list[Tensor]) -> bool:
        has_complex = super()._init_group(group, *tensors)
        for held in tensors:
            held[:] = map(_shard, held)
        return has_complex


def optimizer_of(
    model: torch.nn.Module, settings: RlSettings | SftSettings
) -> torch.optim.Optimizer:
    """Make the optimiser that a stage names; UserError where its package is not installed."""
    stage = "sft" if isinstance(settings, SftSettings) else "rl"
    betas = (settings.beta1, settings.beta2)
    if settings.optimizer == "adamw":
        return adamw(model, settings.lr, settings.weight_decay, betas)
    require_8bit(stage)
    from bitsandbytes.optim import AdamW8bit

    _try_8bit(stage, next(model.parameters()).device)
    groups = [
        {"params": g["params"], "weight_decay": g["weight_decay"]}
        for g in adamw(model, settings.lr, settings.weight_decay, betas).param_groups
    ]
    if any(_is_sharded(p) for g in groups for p in g["params"]):
        return OnShards(AdamW8bit, groups, lr=settings.lr, betas=betas)
    return AdamW8bit(groups, lr=settings.lr, betas=betas)


class OnShards(torch.optim.Optimizer):
    """An optimiser of plain tensors, on this rank's shards of parameters that are DTensors.

    Moments of 8 bits are quantised in blocks of a shard, which another number of ranks would cut
    elsewhere: a checkpoint holds those of every rank that shares one copy of the weights, and goes
    on where as many share one.
    """

    def __init__(self, kind: Any, groups: list[dict[str, Any]], **settings: Any) -> None:
        self._parts: list[tuple[Any, torch.nn.Parameter]] = []
        local = []
        for group in groups:
            parts = [(p, torch.nn.Parameter(p.detach().to_local())) for p in group["params"]]
            # a rank may have no row of a small parameter
            parts = [(whole, part) for whole, part in parts if part.numel()]
            self._parts += parts
            local.append({**group, "params": [part for _, part in parts]})
        self._whole = [p for group in groups for p in group["params"]]
        self._shards: int = self._whole[0].device_mesh.size(-1)
        self._inner = kind(local, **settings)
        self.param_groups = self._inner.param_groups
        self.defaults = self._inner.defaults

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for whole, part in self._parts:
            part.grad = None if whole.grad is None else whole.grad.to_local()
        self._inner.step()
        for _, part in self._parts:
            part.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        for whole in self._whole:
            whole.grad = None

    def state_dict(self) -> dict[str, Any]:
        state = self._inner.state_dict()
        return state if ranks.size() == 1 else {"ranks": PerRank(state, self._shards)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        parts = state_dict.get("ranks", [state_dict])
        if len(parts) != self._shards:
            raise UserError(
                f"the 8-bit moments of this run are those of {len(parts)} processes, and these "
                f"are {self._shards}; resume with {len(parts)}, or with scale.shard={len(parts)}"
            )
        self._inner.load_state_dict(parts[ranks.rank() % self._shards])
        self.param_groups = self._inner.param_groups


def require_8bit(stage: str) -> None:
    """UserError without bitsandbytes."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UserError(
            f"{stage}.optimizer=adamw_8bit needs the package bitsandbytes; pip install "
            f"'rrgkern[gpu]', or use {stage}.optimizer=adamw"
        )


def _try_8bit(stage: str, device: torch.device) -> None:
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
            f"{stage}.optimizer=adamw_8bit: bitsandbytes {bitsandbytes.__version__} cannot run on "
            f"{device.type} ({reason[0]}); pip install -U bitsandbytes (0.50.2 runs on a CPU), or "
            f"use {stage}.optimizer=adamw"
        ) from error


def learning_rate(step: int, steps: int, peak: float, warmup: int, schedule: str) -> float:
    """The rate of `step` (counted from 0): linear warm-up, then constant or half a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


@torch.no_grad()
def clip_gradients(parameters: Iterable[torch.nn.Parameter], clip: float) -> Tensor:
    """Return the norm of all gradients, scaled down to `clip` where it is larger.

    The norm, before clipping and of all ranks, stays on the device. A clip of 0 scales nothing.
    """
    parameters, limit = list(parameters), clip if clip > 0 else float("inf")
    gradients: list[Any] = [p.grad for p in parameters if p.grad is not None]
    if not any(map(_is_sharded, gradients)):
        # the norm of no gradient at all comes on the CPU
        return torch.nn.utils.clip_grad_norm_(parameters, limit).to(parameters[0].device)
    shards = [_shard(gradient) for gradient in gradients]
    squared = torch.nn.utils.get_total_norm(shards).square()
    mesh, placements = gradients[0].device_mesh, gradients[0].placements
    for dimension, placement in enumerate(placements):
        if placement.is_shard():
            dist.all_reduce(squared, group=mesh.get_group(dimension))
    norm = squared.sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    for shard in shards:
        shard.mul_(factor)
    return norm


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def _shard(tensor: Any) -> Tensor:
    return tensor.to_local() if _is_sharded(tensor) else tensor


def apply_step(
    optimizer: torch.optim.Optimizer,
    norm: Tensor | float,
    lr: float,
    mark_dirty: Callable[[], None] = lambda: None,
) -> float:
    """Steps with clipped gradients and clears them; returns their norm before clipping.

    norm: that of `clip_gradients`; a tensor is read from its device. `mark_dirty` is called right
    before the first weight changes. Raises NotFinite, and changes none, when the norm is not
    finite.
    """
    norm = float(norm)
    if not math.isfinite(norm):
        raise NotFinite(
            f"the norm of the gradient is {norm}; lower the learning rate (sft.lr, rl.lr)"
        )
    for group in optimizer.param_groups:
        group["lr"] = lr
    mark_dirty()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
