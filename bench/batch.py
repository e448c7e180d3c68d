"""Batches to measure on: a dense one, and the one of the domain.

In the domain's batch 60 % of the positions are prompt or padding, and 35 % of the groups have no
variance, so no advantage. In the sparse one nothing is masked and 70 % of the groups have none.
RRGKERN_BENCH_DRY=1 shrinks every batch to a few rows: it shows that a
bench runs, and measures nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern import linear_token_logps, loss_scale

DRY = os.environ.get("RRGKERN_BENCH_DRY") == "1"
# (share of masked positions, share of groups without variance)
KINDS = {"dense": (0.0, 0.0), "domain": (0.6, 0.35), "sparse": (0.0, 0.7)}


@dataclass(frozen=True)
class Sizes:
    """S = groups · members sequences of T = `length` positions."""

    groups: int
    members: int
    length: int
    width: int
    vocabulary: int

    @property
    def sequences(self) -> int:
        return self.groups * self.members

    @property
    def positions(self) -> int:
        return self.sequences * self.length

    def flat_groups(self, kind: str) -> int:
        """Count the groups without variance."""
        return round(KINDS[kind][1] * self.groups)

    def scored(self, kind: str) -> int:
        """Count the scored positions."""
        return round((1 - KINDS[kind][0]) * self.positions)

    def active(self, kind: str) -> int:
        """About how many of those have an advantage."""
        return round(self.scored(kind) * (1 - self.flat_groups(kind) / self.groups))


@dataclass(frozen=True)
class Batch:
    """Hold what a loss takes.

    [S, T] is padded, [N] holds the scored tokens one after the other.

    Attributes:
        mask: [S, T] bool, True where a token is scored: a run in the middle of each sequence.
        targets: [S, T] int64.
        old: [S, T] fp32 log-probabilities of the policy that sampled.
        advantages: [S] fp32; 0 throughout a group without variance.
        offsets: [S+1] int64, where the sequences begin among the N scored tokens.
        every: [S+1] int64, where they begin among all positions.
        scale: [S] fp32, the mean over sequences of their token means.
    """

    mask: Tensor
    targets: Tensor
    old: Tensor
    advantages: Tensor
    offsets: Tensor
    every: Tensor
    scale: Tensor


def draw_layout(sizes: Sizes, kind: str, seed: int) -> Batch:
    """Draw masks, targets and advantages on the CPU.

    `old` holds what is added to the policy's log-probs."""
    generator = torch.Generator().manual_seed(seed)
    shape = (sizes.sequences, sizes.length)
    advantages = torch.randn(sizes.groups, sizes.members, generator=generator)
    advantages[: sizes.flat_groups(kind)] = 0
    lengths = torch.full((sizes.sequences,), sizes.length)
    start = torch.zeros(sizes.sequences, dtype=torch.int64)
    if sizes.scored(kind) < sizes.positions:
        lengths = _uneven(sizes.scored(kind), sizes.sequences, sizes.length, generator)
        room = sizes.length - lengths
        start = (torch.rand(sizes.sequences, generator=generator) * (room + 1)).long()
    place = torch.arange(sizes.length)
    mask = (place >= start[:, None]) & (place < (start + lengths)[:, None])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Batch(
        mask=mask,
        targets=torch.randint(sizes.vocabulary, shape, generator=generator),
        old=0.1 * torch.randn(shape, generator=generator),
        advantages=advantages.flatten(),
        offsets=offsets,
        every=torch.arange(0, sizes.positions + 1, sizes.length),
        scale=loss_scale("grpo", offsets),
    )


def _uneven(total: int, sequences: int, most: int, generator: torch.Generator) -> Tensor:
    """Lengths between 1 and `most` that sum to `total`, spread by about half their mean."""
    mean = total / sequences
    spread = min(mean - 1, most - mean) * torch.linspace(-0.9, 0.9, sequences)
    lengths = (mean + spread[torch.randperm(sequences, generator=generator)]).round().long()
    for i in range(sequences):
        step = int((total - lengths.sum()).clamp(1 - lengths[i], most - lengths[i]))
        lengths[i] += step
    return lengths


@dataclass(frozen=True)
class HeadBatch:
    """hidden [S, T, H] and weight [V, H], and the batch whose policy they are."""

    hidden: Tensor
    weight: Tensor
    batch: Batch


def draw_head(
    sizes: Sizes, kind: str, seed: int, *, device: str, dtype: torch.dtype, frozen: bool
) -> HeadBatch:
    """States that lean towards their targets, as a policy's do: most of them are likely."""
    layout = draw_layout(sizes, kind, seed)
    generator = torch.Generator(device).manual_seed(seed)
    options = {"device": device, "generator": generator}
    weight = torch.randn(sizes.vocabulary, sizes.width, **options).div_(sizes.width**0.5)
    weight = weight.to(dtype)
    targets = layout.targets.to(device)
    hidden = torch.randn(*targets.shape, sizes.width, **options)
    # A target's logit then stands this far above the mean of the others, log V + 1/2 at p = 1/2.
    lean = torch.log(torch.tensor(float(sizes.vocabulary))) + 2 * torch.randn(
        *targets.shape, 1, **options
    )
    hidden = (hidden + lean * weight[targets]).to(dtype)
    with torch.no_grad():
        logps = linear_token_logps(hidden.flatten(0, 1), weight, targets.flatten()).logps
    batch = _to(layout, device, logps.view(targets.shape))
    return HeadBatch(hidden.requires_grad_(), weight.requires_grad_(not frozen), batch)


def draw_logits(
    sizes: Sizes, kind: str, seed: int, *, device: str, dtype: torch.dtype
) -> tuple[Tensor, Batch]:
    """[S, T+1, V] logits, whose last position predicts nothing, and their batch, [S, T+1]."""
    layout = _one_longer(draw_layout(sizes, kind, seed))
    generator = torch.Generator(device).manual_seed(seed)
    shape = (sizes.sequences, sizes.length + 1, sizes.vocabulary)
    logits = torch.randn(shape, device=device, generator=generator, dtype=dtype)
    targets = layout.targets.to(device)
    # As in draw_head. One row at a time: a [S, T, V] temporary would double the memory.
    lean = torch.log(torch.tensor(float(sizes.vocabulary))).to(device=device, dtype=dtype)
    logits.scatter_add_(2, targets[..., None], lean.expand(*targets.shape, 1))
    logps = torch.empty(targets.shape, device=device)
    for row, (values, wanted) in enumerate(zip(logits, targets, strict=True)):
        logps[row] = values.float().log_softmax(-1).gather(-1, wanted[:, None])[:, 0]
    return logits.requires_grad_(), _to(layout, device, logps)


def _one_longer(batch: Batch) -> Batch:
    """One more position in each sequence, which is not scored."""
    sequences, length = batch.mask.shape
    return replace(
        batch,
        mask=F.pad(batch.mask, (0, 1)),
        targets=F.pad(batch.targets, (0, 1)),
        old=F.pad(batch.old, (0, 1)),
        every=torch.arange(0, sequences * (length + 1) + 1, length + 1),
    )


def _to(layout: Batch, device: str, logps: Tensor) -> Batch:
    return Batch(
        mask=layout.mask.to(device),
        targets=layout.targets.to(device),
        old=logps + layout.old.to(device),
        advantages=layout.advantages.to(device),
        offsets=layout.offsets.to(device),
        every=layout.every.to(device),
        scale=layout.scale.to(device),
    )
