"""Variants of the loss and batches that reach every branch of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from rrgkern import PolicyLoss
from rrgkern.ops import flatten
from rrgkern.policy_loss.inputs import LogpsInputs, PolicyInputs
from rrgkern.policy_loss.reference import Terms, policy_loss_reference, terms
from rrgkern.policy_loss.spec import KLS, RATIO_LEVELS, SAMPLER_LEVELS, SAMPLER_MODES, SURROGATES
from tests.rrgkern.device import DEVICE
from tests.tolerance import assert_close_to_truth

LENGTHS = (5, 0, 6, 1, 8, 0)


@dataclass(frozen=True)
class Batch:
    """The tensor arguments of the op, in its order."""

    logps: Tensor
    advantages: Tensor
    offsets: Tensor
    scale: Tensor
    old: Tensor | None = None
    ref: Tensor | None = None
    sampler: Tensor | None = None
    token_weight: Tensor | None = None
    entropy: Tensor | None = None
    on_policy: Tensor | None = None
    mask: Tensor | None = None

    def arguments(self, spec: PolicyLoss) -> tuple[object, ...]:
        """Positional arguments of `policy_loss_fwd` and of the reference."""
        return flatten(LogpsInputs(self.logps, self.entropy, self.policy(spec)))

    def policy(self, spec: PolicyLoss) -> PolicyInputs:
        given = {name: getattr(self, name) for name in PolicyInputs._fields if hasattr(self, name)}
        advantages, scale = self.per_token(self.offsets.numel() - 1)
        return PolicyInputs(
            **given, advantage_per_token=advantages, scale_per_token=scale, spec=spec.encode()
        )

    def terms(self, spec: PolicyLoss) -> Terms:
        return terms(self.logps, self.entropy, self.policy(spec))

    def tensors(self) -> tuple[Tensor | None, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def per_token(self, sequences: int) -> tuple[bool, bool]:
        return self.advantages.numel() != sequences, self.scale.numel() != sequences

    def to(self, dtype: torch.dtype) -> Batch:
        """The same batch with its numbers in `dtype`."""
        return Batch(
            *(t if t is None or not t.is_floating_point() else t.to(dtype) for t in self.tensors())
        )

    def on(self, device: str) -> Batch:
        return Batch(*(t if t is None else t.to(device) for t in self.tensors()))

    def changed(self, **tensors: Tensor | None) -> Batch:
        return replace(self, **tensors)

    @property
    def keep(self) -> Tensor:
        return torch.ones_like(self.logps, dtype=torch.bool) if self.mask is None else self.mask


def batch(
    seed: int = 0,
    *,
    dtype: torch.dtype = torch.float64,
    lengths: tuple[int, ...] = LENGTHS,
    old: bool = True,
    sampler: bool = True,
    per_token: bool = False,
    on_policy: bool = True,
    mask: bool = True,
    device: str = DEVICE,
) -> Batch:
    """Log-ratios wide enough to clip on both sides, a NaN sampler value, a zero advantage."""
    generator = torch.Generator().manual_seed(seed)

    def normal(n: int, spread: float) -> Tensor:
        # Rounded to fp32 first: the fp32 batch and its fp64 truth hold the same numbers.
        return (spread * torch.randn(n, generator=generator)).double()

    sequences = len(lengths)
    offsets = torch.tensor((0, *lengths)).cumsum(0)
    tokens = int(offsets[-1])
    logps = -normal(tokens, 1.5).abs()
    behaviour = (logps + normal(tokens, 0.4)).float().double()
    engine = (behaviour + normal(tokens, 0.4)).float().double()
    if tokens > 2:
        engine[2] = torch.nan
    advantages = normal(tokens if per_token else sequences, 1.0)
    advantages[-2:-1] = 0.0
    flags = torch.zeros(sequences, dtype=torch.bool)
    flags[2::5] = True
    made = Batch(
        logps=logps,
        advantages=advantages,
        offsets=offsets,
        scale=normal(tokens if per_token else sequences, 1.0).abs() / max(tokens, 1),
        old=behaviour if old else None,
        ref=(logps + normal(tokens, 0.5)).float().double(),
        sampler=engine if sampler else None,
        token_weight=1.0 + normal(tokens, 1.0).abs(),
        entropy=normal(tokens, 1.0).abs(),
        on_policy=flags if on_policy else None,
        mask=(torch.rand(tokens, generator=generator) > 0.2) if mask else None,
    )
    return made.to(dtype).on(device)


def variants() -> Iterator[PolicyLoss]:
    """Every combination that PolicyLoss accepts; the numbers make each branch matter."""
    choices = itertools.product(
        SURROGATES, RATIO_LEVELS, KLS, (False, True), SAMPLER_LEVELS, SAMPLER_MODES
    )
    for surrogate, level, kl, weighted, sampler_level, mode in choices:
        if surrogate in ("luspo", "gmpo") and level != "sequence":
            continue
        if surrogate == "vespo" and (level != "token" or sampler_level != "token"):
            continue
        yield PolicyLoss(
            surrogate=surrogate,
            ratio_level=level,
            eps_low=None if surrogate == "cispo" and weighted else 0.2,
            eps_high=0.15,
            dual_clip=1.4 if surrogate in ("clip", "luspo") and weighted else None,
            kl=kl,
            beta=0.3,
            kl_ratio_weight=weighted,
            entropy_coef=0.1,
            sampler_level=sampler_level,
            sampler_mode=mode,
            sampler_min=0.6,
            sampler_max=1.5,
        )


def sampled_variants(stride: int, device: str = DEVICE) -> list[tuple[PolicyLoss, Batch]]:
    """Every `stride`-th variant with a batch whose optional parts cycle independently of it."""
    options = itertools.cycle(
        {
            "old": i % 3 != 2,
            "sampler": i % 4 != 3,
            "per_token": i % 2 == 1,
            "mask": i % 5 != 4,
            "on_policy": i % 7 < 4,
        }
        for i in range(420)
    )
    chosen = itertools.islice(variants(), 0, None, stride)
    return [
        (spec, batch(seed, **option, device=device))
        for seed, (spec, option) in enumerate(zip(chosen, options, strict=False))
    ]


def name_of(spec: PolicyLoss) -> str:
    """A test's name."""
    kl = f"{spec.kl}r" if spec.kl_ratio_weight else spec.kl
    return f"{spec.surrogate}-{spec.ratio_level}-{kl}-{spec.sampler_level}-{spec.sampler_mode}"


# Bound an fp32 result's error: the kernel must pass, and mutants must fail.
EPS = torch.finfo(torch.float32).eps


def check_fp32(spec: PolicyLoss, data: Batch, served: tuple[Tensor, ...]) -> None:
    """Raise unless loss, gradients and metrics in fp32 are as near the truth as eager PyTorch."""
    loss, coef, coef_entropy, metrics = served
    truth = policy_loss_reference(*data.arguments(spec))
    single = data.to(torch.float32)
    eager_loss, eager_coef, eager_entropy = eager(spec, single)
    eager_metrics = policy_loss_reference(*single.arguments(spec))[3]
    assert_close_to_truth(loss, eager_loss, truth[0], tiny=4 * EPS * magnitude(spec, data).sum())
    assert_close_to_truth(coef, eager_coef, truth[1], tiny=4 * EPS * magnitude(spec, data))
    assert_close_to_truth(coef_entropy, eager_entropy, truth[2])
    assert_close_to_truth(metrics, eager_metrics, truth[3], tiny=4 * EPS * (1 + truth[3].abs()))


def eager(spec: PolicyLoss, data: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradients by autograd, in the dtype of the batch."""
    logps, entropy = data.logps.clone().requires_grad_(), data.entropy.clone().requires_grad_()
    moving = data.changed(logps=logps, entropy=entropy)
    t = moving.terms(spec)
    loss = (t.scale * t.loss).sum()
    gradients = torch.autograd.grad(loss, (logps, entropy), materialize_grads=True)
    entropy_gradient = gradients[1] if spec.entropy_coef else entropy.new_empty(0)
    return loss.detach(), gradients[0], entropy_gradient


def magnitude(spec: PolicyLoss, data: Batch) -> Tensor:
    """[N] sum of the absolute parts of each coef and loss: a sum may cancel, its rounding not."""
    t = data.terms(spec)
    policy = t.sampler_ratio * t.advantage.abs() * t.gamma * t.ratio.clamp(min=1)
    reference = spec.beta * (1 + t.kl_log_ratio.abs()) * t.ratio.clamp(min=1)
    parts = t.scale * (policy * (1 + t.logps.abs()) + reference * (1 + t.kl.abs()) + t.entropy)
    if spec.ratio_level != "sequence":
        return parts
    # Through the one ratio a token gets the mean of its sequence.
    sums = parts.new_zeros(t.length.numel()).index_add(0, t.sequence, parts)
    return parts + (sums / t.length.clamp(min=1))[t.sequence]
