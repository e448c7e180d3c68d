"""Logits that break a naive softmax, ratios without end, values that are missing."""

from __future__ import annotations

import math

import pytest
import torch

from rrgkern import PolicyLoss
from rrgkern.policy_loss.from_logits.op import policy_loss_from_logits_fwd_
from rrgkern.policy_loss.reference import METRICS
from tests.products import more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.from_logits.cases import (
    EVERYTHING,
    Outcome,
    Problem,
    arguments,
    check,
    problem,
)
from tests.rrgkern.policy_loss.from_logits.test_kernel import compiled_cpu, in_place, through_op

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
kernels = pytest.mark.parametrize("kernel", [through_op, compiled_cpu])
BONUS = PolicyLoss(entropy_coef=0.2)
LENGTHS = (3, 3)


def on_policy(logits: torch.Tensor, **options: object) -> Problem:
    plain = {"old": False, "sampler": False, "mask": False, "on_policy": False}
    given = problem(0, logits.shape[1], logits=logits, lengths=LENGTHS, **plain, **options)
    return given._replace(data=given.data.changed(ref=None))


def spread(vocabulary: int = 64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(sum(LENGTHS), vocabulary, generator=generator)


@kernels
@pytest.mark.parametrize("margin", [20.0, *more(80.0)])
@pytest.mark.parametrize("on_target", [True, False])
def test_collapsed_softmax(kernel, margin: float, on_target: bool) -> None:
    given = on_policy(spread(), temperature=1.0)
    favourite = given.targets if on_target else (given.targets + 1) % 64
    logits = given.logits.clamp(-3, 3).scatter(1, favourite[:, None], margin)
    given = given._replace(logits=logits)
    for spec in (PolicyLoss(), BONUS):
        outcome = kernel(given, spec)
        check(outcome, given, spec)
    if on_target and margin == 20.0:
        assert outcome.gradient.ne(0).any(1).all()


@kernels
def test_banned_columns(kernel) -> None:
    given = on_policy(spread())
    banned = torch.arange(64, device=given.logits.device) % 3 == 0
    logits = given.logits.masked_fill(banned, -torch.inf)
    given = given._replace(logits=logits, targets=given.targets // 3 * 3 + 1)
    outcome = kernel(given, BONUS)
    check(outcome, given, BONUS)
    assert (outcome.gradient[:, banned] == 0).all()


@kernels
@pytest.mark.parametrize("far", [95.0, -math.inf, *more(-95.0, math.inf)])
def test_far_ratios(kernel, far: float) -> None:
    given = on_policy(spread())
    logps = torch.log_softmax(given.logits.double() / given.temperature, -1)
    logps = logps.gather(1, given.targets[:, None])[:, 0]
    spec = PolicyLoss(beta=0.1, kl_ratio_weight=True)
    data = given.data.changed(old=logps - far, ref=logps + far, sampler=logps + far)
    given = given._replace(data=data)
    outcome = kernel(given, spec)
    assert all(part.isfinite().all() for part in outcome)
    # Beyond the clamp of the ratio there is no gradient, nor beyond that of the KL.
    assert (outcome.gradient == 0).all() and not outcome.active.any()


@kernels
def test_an_impossible_target_keeps_its_gradient(kernel) -> None:
    given = on_policy(spread())
    logits = given.logits.scatter(1, given.targets[:, None], -torch.inf)
    outcome = kernel(given._replace(logits=logits), PolicyLoss())
    assert outcome.metrics[METRICS.index("ratio_max")] == 1 and outcome.loss.isfinite()
    coef = outcome.gradient.gather(1, given.targets[:, None])
    p = torch.softmax(logits / given.temperature, 1)
    expected = (-coef * p).scatter(1, given.targets[:, None], coef)
    torch.testing.assert_close(outcome.gradient, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kernel", [through_op, in_place, compiled_cpu])
@pytest.mark.parametrize("broken", ["all -inf", "+inf at the target", *more("nan", "+inf")])
def test_a_broken_scored_row_is_never_hidden(kernel, broken: str) -> None:
    given = on_policy(spread())
    logits = given.logits.clone()
    target = int(given.targets[4])
    if broken == "all -inf":
        logits[4] = -torch.inf
    elif broken == "nan":
        logits[4, 9] = torch.nan
    else:
        logits[4, target if "target" in broken else (target + 1) % 64] = torch.inf
    outcome = kernel(given._replace(logits=logits), EVERYTHING_WITHOUT_KL)
    assert outcome.loss.isnan() and outcome.metrics[METRICS.index("ratio_mean")].isnan()
    others = torch.arange(len(logits), device=logits.device) != 4
    clean = kernel(given, EVERYTHING_WITHOUT_KL)
    assert torch.equal(outcome.gradient[others], clean.gradient[others])


EVERYTHING_WITHOUT_KL = PolicyLoss(
    entropy_coef=EVERYTHING.entropy_coef, dual_clip=EVERYTHING.dual_clip
)


# Rows past 2^31 elements, a kernel whose 64-bit offsets are taken away, and shared compilations.
# On a GPU each takes up to 8 GiB, and a process keeps what it has taken: one of them takes all.
# Three rows this far apart: the third begins 2^31 elements after the first.
FAR_APART = 2**30


def check_far_rows(layout: str) -> None:
    """Raise unless loss and gradient are right where the last row, or column, is far away."""
    given = problem(0, 3 if layout == "columns" else 40, dtype=torch.bfloat16, lengths=(2, 1))
    given = given._replace(data=given.data.changed(mask=None))
    shape = given.logits.shape
    storage = torch.empty(2 * FAR_APART + 40, dtype=torch.bfloat16, device=DEVICE)
    strides = (1, FAR_APART) if layout == "columns" else (FAR_APART, 1)
    logits = storage.as_strided(shape, strides).copy_(given.logits)
    walked = logits[:, None] if layout == "batches" else logits
    loss, active, metrics = policy_loss_from_logits_fwd_(walked, *arguments(given, EVERYTHING)[1:])
    check(Outcome(loss, logits.clone(), active, metrics), given, EVERYTHING)


@pytest.mark.xdist_group("gigabytes")
@pytest.mark.parametrize("layout", ["rows", "columns", "batches"])
def test_logits_and_gradient_past_two_to_the_31(layout: str) -> None:
    check_far_rows(layout)
