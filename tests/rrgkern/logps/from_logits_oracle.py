"""Inputs, eager PyTorch and the fp64 truth for log-probabilities from logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tests.rrgkern.device import DEVICE
from tests.tolerance import assert_close_to_truth


class Outcome(NamedTuple):
    logps: Tensor
    entropy: Tensor
    gradient: Tensor


class Problem(NamedTuple):
    logits: Tensor
    targets: Tensor
    coef: Tensor
    coef_entropy: Tensor
    temperature: float


def problem(
    *shape: int, dtype: torch.dtype = torch.float32, temperature: float = 0.7, seed: int = 0
) -> Problem:
    """Logits of spread 3, coefficients of both signs; every third row has coefficients 0."""
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(*shape, generator=generator)).to(dtype)
    targets = torch.randint(shape[-1], shape[:-1], generator=generator)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    coef, coef_entropy = torch.randn(2, *shape[:-1], generator=generator, dtype=wide)
    for each in (coef, coef_entropy):
        each.view(-1)[::3] = 0
    on_device = (part.to(DEVICE) for part in (logits, targets, coef, coef_entropy))
    return Problem(*on_device, temperature)


def run(function, given: Problem, *, entropy: bool = True) -> Outcome:
    """Forward of `function(logits, targets, temperature, entropy)` and backward of its sum."""
    logits = given.logits.detach().requires_grad_()
    logps, entropies = function(logits, given.targets, given.temperature, entropy)
    total = (given.coef * logps).sum()
    if entropy:
        total = total + (given.coef_entropy * entropies).sum()
    (gradient,) = torch.autograd.grad(total, logits)
    kept = torch.empty(0) if entropies is None else entropies.detach()
    return Outcome(logps.detach(), kept, gradient)


def eager(
    logits: Tensor, targets: Tensor, temperature: float, entropy: bool = True
) -> tuple[Tensor, Tensor]:
    """Compute what one writes without this library: log_softmax of the logits in fp32."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    log_p = torch.log_softmax(wide / temperature, -1)
    finite = torch.where(log_p == -torch.inf, 0.0, log_p)
    return log_p.gather(-1, targets[..., None])[..., 0], -(log_p.exp() * finite).sum(-1)


def truth(given: Problem) -> Outcome:
    """fp64 formulas in which nothing cancels where a softmax collapses.

    The largest logit stays out of the sum, and the gradient is written out
    (`test_from_logits_accuracy.py`
    holds the same formula against autograd): autograd would lose both to 1 - 1.
    """
    z, column = given.logits.double() / given.temperature, given.targets[..., None]
    top, at = z.max(-1, keepdim=True)
    rest = (z - top).scatter(-1, at, -torch.inf).exp().sum(-1, keepdim=True)
    log_p = (z - top) - torch.log1p(rest)
    finite = torch.where(log_p == -torch.inf, 0.0, log_p)
    p, logps = log_p.exp(), log_p.gather(-1, column)
    entropy = -(p * finite).sum(-1, keepdim=True)
    d_logps = (-p).scatter(-1, column, -torch.expm1(logps))
    d_entropy = -p * (finite + entropy)
    coef, coef_entropy = given.coef.double()[..., None], given.coef_entropy.double()[..., None]
    gradient = (coef * d_logps + coef_entropy * d_entropy) / given.temperature
    return Outcome(logps[..., 0], entropy[..., 0], gradient)


def check(
    actual: Outcome, given: Problem, *, entropy: bool = True, exponential_ulps: int = 0
) -> None:
    """Each logp, each entropy and each row of the gradient against the truth.

    `exponential_ulps`: what an exponential may err by where eager's yardstick is too short: 2 for
    ex2.approx (PTX ISA).
    """
    if not entropy:
        given = given._replace(coef_entropy=torch.zeros_like(given.coef_entropy))
    exact, plain = truth(given), run(eager, given)
    if given.logits.dtype == torch.float64:
        # The truth has no more digits than the kernel: no yardstick is left but its rounding.
        for got, want in zip(actual, exact, strict=True):
            if got.numel():
                torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13)
        return
    eps = torch.finfo(torch.float32).eps
    logps, entropies = exact.logps.flatten(), exact.entropy.flatten()
    # A logp -e^-m carries the rounding of the margin m, relative; the sum behind an entropy that
    # of 1, absolute.
    margin = -logps.abs().clamp(min=1e-300).log()
    tiny = 4 * eps * logps.abs() * margin.clamp(min=1)
    # An ulp is at most eps of a number; the sum that a logp is the logarithm of errs as they do.
    tiny = tiny + exponential_ulps * eps * -torch.expm1(logps)
    assert_close_to_truth(
        actual.logps.flatten(), plain.logps.flatten(), logps, tiny=tiny.nan_to_num(posinf=0.0)
    )
    if entropy:
        assert_close_to_truth(
            actual.entropy.flatten(),
            plain.entropy.flatten(),
            entropies,
            tiny=(4 + exponential_ulps) * eps * entropies.clamp(min=1),
        )
    # exp2 of a product with log2(e) rounds once more than exp: visible in fp32 only.
    rounding = max(torch.finfo(actual.gradient.dtype).eps, (4 + exponential_ulps) * eps)
    norms = torch.linalg.vector_norm(exact.gradient, dim=-1).flatten()
    assert_close_to_truth(actual.gradient, plain.gradient, exact.gradient, tiny=rounding * norms)
