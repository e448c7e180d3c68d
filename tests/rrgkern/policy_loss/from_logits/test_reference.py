"""The reference: its gradient is that of the two rooms under autograd, in fp64."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss
from rrgkern.logps.reference import token_logps_reference
from rrgkern.policy_loss.from_logits.reference import from_logits_reference
from tests.rrgkern.policy_loss.cases import sampled_variants
from tests.rrgkern.policy_loss.from_logits.cases import EVERYTHING, Problem, arguments, problem


def loss_of(given: Problem, spec: PolicyLoss, logits: torch.Tensor) -> torch.Tensor:
    """By autograd: the forward of both references."""
    logps, entropy = token_logps_reference(logits, given.targets, given.temperature)
    data = given.data.changed(logps=logps, entropy=entropy)
    t = data.terms(spec)
    return (t.scale * t.loss).sum()


@pytest.mark.parametrize("spec", [spec for spec, _ in sampled_variants(stride=29)])
def test_the_gradient_is_that_of_autograd(spec: PolicyLoss) -> None:
    given = problem(1, dtype=torch.float64)
    logits = given.logits.requires_grad_()
    loss = loss_of(given, spec, logits)
    (expected,) = torch.autograd.grad(loss, logits)
    got = from_logits_reference(*arguments(given, spec))
    torch.testing.assert_close(got[0], loss.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(got[1].detach(), expected, rtol=1e-9, atol=1e-14)
    assert torch.equal(got[2], expected.ne(0).any(1))


def test_gradcheck_where_nothing_is_detached() -> None:
    given = problem(3, 5, dtype=torch.float64, sampler=False, on_policy=False, lengths=(2, 1, 2))
    logits = given.logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss_of(given, EVERYTHING, z), (logits,))
