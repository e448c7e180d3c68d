"""Batches of groups with an oracle, and the loss once more in plain Python numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from rrgkern import PreferencePairs
from rrgkern.ops import pack
from rrgkern.preference_loss.inputs import PreferenceInputs
from rrgkern.preference_loss.reference import preference_loss_reference
from tests.rrgkern.device import DEVICE


@dataclass(frozen=True)
class Batch:
    """The arguments of the op, in its order."""

    logps: Tensor
    ref: Tensor
    offsets: Tensor
    positive: Tensor
    negative: Tensor
    weight: Tensor
    mask: Tensor | None = None
    tau: float = 0.3
    length_normalized: bool = True

    def arguments(self, dtype: torch.dtype = torch.float64) -> tuple[object, ...]:
        """Positional arguments of `preference_loss_fwd` and of `reference`."""
        return (
            self.logps.to(dtype),
            self.ref.to(dtype),
            self.offsets,
            self.positive,
            self.negative,
            self.weight.to(dtype),
            self.mask,
            self.tau,
            self.length_normalized,
        )

    @property
    def pairs(self) -> PreferencePairs:
        return PreferencePairs(self.positive, self.negative, self.weight)

    def options(self) -> dict[str, object]:
        """Keywords of `preference_loss`."""
        return {"tau": self.tau, "length_normalized": self.length_normalized, "mask": self.mask}

    def changed(self, **fields: object) -> Batch:
        return replace(self, **fields)


def reference(*arguments: object) -> tuple[Tensor, ...]:
    """The reference, with the arguments of the op."""
    return preference_loss_reference(pack(PreferenceInputs, arguments))


def batch(
    seed: int = 0,
    *,
    lengths: tuple[int, ...] = (4, 6, 0, 1, 9, 5, 3),
    n_pairs: int = 12,
    masked: bool = True,
    length_normalized: bool = True,
    spread: float = 2.0,
) -> Batch:
    """Sequences named by several pairs, by both sides and by none; weights of 0 among them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(n: int, spread: float) -> Tensor:
        # Rounded to fp32 first: the fp32 batch and its fp64 truth hold the same numbers.
        return (spread * torch.randn(n, generator=generator)).double()

    offsets = torch.tensor((0, *lengths)).cumsum(0)
    tokens, sequences = int(offsets[-1]), len(lengths)
    logps = -normal(tokens, 2.0).abs()
    named = torch.randint(0, max(sequences - 1, 1), (2, n_pairs), generator=generator)
    weight = normal(n_pairs, 0.5).abs()
    weight[2::4] = 0.0
    mask = torch.rand(tokens, generator=generator) > 0.25 if masked else None
    cpu = (
        logps,
        (logps + normal(tokens, spread)).float().double(),
        offsets,
        named[0],
        named[1],
        weight,
        mask,
    )
    tensors = (None if tensor is None else tensor.to(DEVICE) for tensor in cpu)
    return Batch(*tensors, length_normalized=length_normalized)


def loop_loss(
    data: Batch, logps: list[float] | None = None
) -> tuple[float, list[float], dict[str, float]]:
    """Loss, rewards and metrics, one token and one pair at a time, from the formulas alone."""
    logps = data.logps.tolist() if logps is None else logps
    ref, starts = data.ref.tolist(), data.offsets.tolist()
    kept = [True] * len(logps) if data.mask is None else data.mask.tolist()
    rewards = []
    for start, end in pairwise(starts):
        tokens = [t for t in range(start, end) if kept[t]]
        total = data.tau * sum(logps[t] - ref[t] for t in tokens)
        rewards.append(total / max(len(tokens), 1) if data.length_normalized else total)
    loss, seen = 0.0, []
    listed = zip(data.positive.tolist(), data.negative.tolist(), data.weight.tolist(), strict=True)
    for better, worse, weight in listed:
        if weight:
            gap = rewards[worse] - rewards[better]
            loss += weight * (max(gap, 0.0) + math.log1p(math.exp(-abs(gap))))
            seen.append((rewards[better], rewards[worse]))
    n = max(len(seen), 1)
    metrics = {
        "margin": sum(better - worse for better, worse in seen) / n,
        "accuracy": sum(better > worse for better, worse in seen) / n,
        "reward_positive": sum(better for better, _ in seen) / n,
        "reward_negative": sum(worse for _, worse in seen) / n,
        "pairs": float(len(seen)),
    }
    return loss, rewards, metrics
