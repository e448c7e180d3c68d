"""A batch as the peers hold it, [S, T] with a mask, and this library's loss on the same numbers."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss, loss_scale, policy_loss

# Two fp64 losses differ by the order of their sums.
FP64 = {"rtol": 1e-11, "atol": 1e-13}


def peer(module: str) -> ModuleType:
    """The peer's module; skips the test file unless RRGKERN_PARITY=1, which `make parity` sets.

    With it, a peer that does not import is an error.
    """
    if os.environ.get("RRGKERN_PARITY") != "1":
        reason = "the peers have an environment of their own: run `make parity`"
        pytest.skip(reason, allow_module_level=True)
    return importlib.import_module(module)


@dataclass(frozen=True)
class Padded:
    """[S, T] tensors, advantages also [S]; what the mask leaves out is harmless unless poisoned."""

    logps: Tensor
    old: Tensor
    ref: Tensor
    sampler: Tensor
    entropy: Tensor
    advantages: Tensor
    mask: Tensor

    @property
    def limit(self) -> int:
        return self.mask.shape[1]

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())

    def changed(self, **tensors: Tensor) -> Padded:
        return replace(self, **tensors)

    def masked_fill(self, value: float) -> Padded:
        """The same batch with `value` wherever nothing is scored."""
        fields = {name: getattr(self, name) for name in ("logps", "old", "ref", "sampler")}
        return self.changed(**{k: v.masked_fill(~self.mask, value) for k, v in fields.items()})


def padded(
    seed: int, *, dtype: torch.dtype = torch.float64, empty: bool = True, spread: float = 0.4
) -> Padded:
    """Six sequences of uneven length, holes in their masks; ratios that clip on both sides.

    `empty` adds one without any scored token. Advantages hold both signs and a 0, and the sampler
    a NaN.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        # Rounded to fp32 first: a peer that computes in fp32 sees the same numbers.
        return torch.randn(*size, generator=generator).double()

    lengths = torch.tensor((5, 9, 0 if empty else 4, 7, 1, 9))
    shape = (len(lengths), 9)
    mask = torch.arange(shape[1])[None, :] < lengths[:, None]
    mask &= torch.rand(shape, generator=generator) > 0.15
    mask[:, 0] = lengths > 0
    logps = -normal(*shape).abs()
    old = (logps + spread * normal(*shape)).float().double()
    sampler = (old + 0.3 * normal(*shape)).float().double()
    sampler[1, 0] = torch.nan
    advantages = normal(len(lengths))
    advantages[3] = 0.0
    batch = Padded(
        logps=logps,
        old=old,
        ref=(logps + 0.5 * normal(*shape)).float().double(),
        sampler=sampler,
        entropy=normal(*shape).abs(),
        advantages=advantages,
        mask=mask,
    )
    numbers = {k: v.to(dtype) for k, v in vars(batch).items() if v.is_floating_point()}
    return batch.changed(**numbers)


@dataclass(frozen=True)
class Result:
    """Loss, its gradient by the log-probabilities [S, T], 0 where nothing is scored; metrics."""

    loss: Tensor
    gradient: Tensor
    metrics: dict[str, Any]


def ours(
    data: Padded,
    spec: PolicyLoss,
    aggregation: str,
    *,
    packed: bool,
    on_policy: bool = False,
    sampler: bool = False,
    total_tokens: int | None = None,
    world_size: int = 1,
    token_weight: Tensor | None = None,
) -> Result:
    """`policy_loss`, on the scored tokens alone (`packed`) or on all of them with their mask."""
    lengths = data.mask.sum(1) if packed else torch.full((len(data.mask),), data.limit)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    mask = None if packed else data.mask.flatten()

    def flat(values: Tensor) -> Tensor:
        return values[data.mask] if packed else values.flatten()

    scale = loss_scale(
        aggregation,
        offsets,
        max_length=data.limit if aggregation == "dr_grpo" else None,
        total_tokens=(total_tokens or data.tokens) if aggregation == "dapo" else None,
        world_size=world_size,
        mask=mask,
    )
    logps = flat(data.logps).clone().requires_grad_()
    out = policy_loss(
        logps,
        data.advantages if data.advantages.ndim == 1 else flat(data.advantages),
        offsets,
        scale=unrounded(scale).to(data.logps.dtype),
        old=None if on_policy else flat(data.old),
        ref=flat(data.ref),
        sampler=flat(data.sampler) if sampler else None,
        token_weight=None if token_weight is None else flat(token_weight),
        entropy=flat(data.entropy),
        mask=mask,
        spec=spec,
    )
    (gradient,) = torch.autograd.grad(out.loss, logps)
    full = torch.zeros_like(data.logps)
    if packed:
        full[data.mask] = gradient
    else:
        full = gradient.view_as(full)
    return Result(out.loss.detach(), full, {k: float(v) for k, v in out.metrics.items()})


def unrounded(scale: Tensor) -> Tensor:
    """fp64 of an fp32 scale: here every one is 0 or 1 over a whole number."""
    return torch.where(scale > 0, 1.0 / (1.0 / scale.double()).round(), 0.0)


def assert_same(mine: Result, theirs: Result, **tolerance: float) -> None:
    """Raise unless both losses and both gradients agree."""
    tolerance = tolerance or FP64
    torch.testing.assert_close(mine.loss, theirs.loss.to(mine.loss), **tolerance)
    torch.testing.assert_close(mine.gradient, theirs.gradient.to(mine.gradient), **tolerance)
