"""Batches of logits around those of the policy loss, the truth in fp64, and eager PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern import PolicyLoss
from rrgkern.ops import flatten
from rrgkern.policy_loss.from_logits.reference import from_logits_reference
from rrgkern.policy_loss.inputs import LogitsInputs
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.cases import Batch, batch, magnitude, sampled_variants
from tests.tolerance import assert_close_to_truth

EPS = torch.finfo(torch.float32).eps
EVERYTHING = PolicyLoss(beta=0.3, kl_ratio_weight=True, entropy_coef=0.1, dual_clip=1.5)
NO_ENTROPY = replace(EVERYTHING, entropy_coef=0.0)


class Problem(NamedTuple):
    """Logits [N, V], targets [N], and the rest as `Batch` holds it, numbers of fp32 in fp64."""

    logits: Tensor
    targets: Tensor
    data: Batch
    temperature: float


class Outcome(NamedTuple):
    """Hold what a policy_loss_from_logits returns and writes."""

    loss: Tensor
    gradient: Tensor
    active: Tensor
    metrics: Tensor


def problem(
    seed: int = 0,
    vocabulary: int = 37,
    *,
    dtype: torch.dtype = torch.float32,
    temperature: float = 0.8,
    logits: Tensor | None = None,
    **options: object,
) -> Problem:
    """A batch of the policy loss whose log-probabilities come from logits of spread 3."""
    data = batch(seed, **options, device="cpu")
    generator = torch.Generator().manual_seed(seed)
    if logits is None:
        logits = 3 * torch.randn(data.logps.numel(), vocabulary, generator=generator)
    logits = logits.to(dtype)
    targets = torch.randint(vocabulary, (len(logits),), generator=generator)
    logps = log_softmax(logits.double(), targets, temperature)[0]
    moved = {
        name: None if value is None else (logps + (value - data.logps)).float().double()
        for name in ("old", "ref", "sampler")
        for value in (getattr(data, name),)
    }
    data = data.changed(**moved)
    return Problem(logits.to(DEVICE), targets.to(DEVICE), data.on(DEVICE), temperature)


def rising_problem(vocabulary: int, dtype: torch.dtype = torch.float32) -> Problem:
    """Rows whose largest logit comes late, early, after -inf only, and after columns far below."""
    logits = problem(3, vocabulary).logits.cpu()
    logits[0::4] = logits[0::4].sort(-1).values
    logits[1::4] = logits[1::4].sort(-1, descending=True).values
    logits[2::4, : vocabulary // 2] = -torch.inf
    logits[3::4, : vocabulary // 2] -= 300
    given = problem(3, vocabulary, dtype=dtype, logits=logits, mask=False)
    return given._replace(targets=given.targets // 2 + vocabulary // 2)


def log_softmax(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of the target and entropy, as one writes them."""
    log_p = torch.log_softmax(logits / temperature, -1)
    finite = torch.where(log_p == -torch.inf, 0.0, log_p)
    return log_p.gather(-1, targets[:, None])[:, 0], -(log_p.exp() * finite).sum(-1)


def call_of(given: Problem, spec: PolicyLoss, *, wide: bool = False) -> LogitsInputs:
    """Make the record that `policy_loss_from_logits_fwd_` takes; `wide`: in fp64."""
    logits = given.logits.double() if wide else given.logits
    data = given.data if logits.dtype == torch.float64 else given.data.to(torch.float32)
    entropy = spec.entropy_coef != 0
    return LogitsInputs(logits, given.targets, data.policy(spec), given.temperature, entropy)


def arguments(given: Problem, spec: PolicyLoss, *, wide: bool = False) -> tuple[object, ...]:
    """The same as a list."""
    return flatten(call_of(given, spec, wide=wide))


def token_level(stride: int) -> list[tuple[PolicyLoss, dict[str, bool]]]:
    """Every `stride`-th variant that one pass serves, with the options of its batch."""
    sampled = sampled_variants(stride, device="cpu")
    chosen = [(spec, data) for spec, data in sampled if not data.policy(spec).ties_tokens]
    return [
        (
            spec,
            {
                "old": data.old is not None,
                "sampler": data.sampler is not None,
                "per_token": data.advantages.numel() != len(data.offsets) - 1,
                "mask": data.mask is not None,
                "on_policy": data.on_policy is not None,
            },
        )
        for spec, data in chosen
    ]


def check(actual: Outcome, given: Problem, spec: PolicyLoss) -> None:
    """Raise unless each row of the gradient, loss and metrics are as near the truth as eager."""
    truth = Outcome(*from_logits_reference(*arguments(given, spec, wide=True)))
    if given.logits.dtype == torch.float64:
        for got, want in zip(actual, truth, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-13)
        return
    loss, gradient, metrics = eager(given, spec)
    keep = given.data.keep
    assert torch.equal(actual.active[~keep], torch.zeros_like(actual.active[~keep]))
    logps, entropy = log_softmax(given.logits.double(), given.targets, given.temperature)
    data = given.data.changed(logps=logps, entropy=entropy)
    size = magnitude(spec, data).nan_to_num()
    assert_close_to_truth(actual.loss, loss, truth.loss, tiny=4 * EPS * size.sum())
    # A logp of 15 carries 15 roundings of 1 into the exponent of the ratio, and so into coef; where
    # the parts of coef cancel, that of each part stays.
    rounded = 4 * EPS * (1 + torch.where(keep, logps.abs(), 0.0).nan_to_num(posinf=0.0))
    norms = torch.linalg.vector_norm(truth.gradient, dim=-1)
    rounding = rounded.clamp(min=torch.finfo(actual.gradient.dtype).eps) * norms
    assert_close_to_truth(
        *(actual.gradient, gradient, truth.gradient),
        tiny=rounding + rounded * torch.where(keep, size, 0.0) / given.temperature,
    )
    worst = float(rounded.max()) if len(rounded) else EPS
    tiny = 2 * worst * (1 + truth.metrics.abs())
    assert_close_to_truth(actual.metrics, metrics, truth.metrics, tiny=tiny)


def eager(given: Problem, spec: PolicyLoss) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradient by autograd of what one writes in fp32, and the metrics."""
    logits = given.logits.detach().requires_grad_()
    logps, entropy = log_softmax(logits.float(), given.targets, given.temperature)
    data = given.data.to(torch.float32).changed(
        logps=logps, entropy=entropy if spec.entropy_coef else None
    )
    t = data.terms(spec)
    loss = (t.scale * t.loss).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    metrics = from_logits_reference(*arguments(given, spec))[3]
    return loss.detach(), gradient, metrics
