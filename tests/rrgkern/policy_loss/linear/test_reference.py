"""The reference: its explicit gradients are the derivative of its forward, in fp64."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss, linear_token_logps, policy_loss
from rrgkern.policy_loss.linear import reference
from tests.rrgkern.policy_loss.linear.cases import problem

SPECS = [
    PolicyLoss(beta=0.1, kl_ratio_weight=True),
    PolicyLoss(ratio_level="sequence", entropy_coef=0.05),
    PolicyLoss(surrogate="cispo"),
]


def small(spec: PolicyLoss, given: str = "old ref mask token_weight"):
    return problem(spec, lengths=(2, 3), width=3, vocabulary=7, given=given, bias=True, softcap=3.0)


def loss_of(given, hidden, weight, bias):
    return reference.forward(given.call._replace(hidden=hidden, weight=weight, bias=bias))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.surrogate + spec.ratio_level)
def test_explicit_gradients_are_the_derivative(spec):
    given = small(spec)
    leaves = [x.requires_grad_() for x in given[:3]]
    loss = loss_of(given, *leaves)
    expected = torch.autograd.grad(loss, leaves)
    with torch.no_grad():
        result = reference.forward_and_backward(given.call)
    torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-12, atol=1e-14)
    for got, want in zip(result[1:4], expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-13)


def test_forward_passes_gradcheck():
    given = small(PolicyLoss(beta=0.1, entropy_coef=0.05, eps_low=5.0, eps_high=5.0))
    leaves = [x.requires_grad_() for x in given[:3]]
    assert torch.autograd.gradcheck(lambda *x: loss_of(given, *x), leaves)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
def test_it_is_the_two_rooms_one_after_the_other():
    given = small(PolicyLoss(beta=0.1), given="old ref")
    logps = linear_token_logps(
        *(given.hidden, given.weight, given.targets),
        bias=given.bias,
        temperature=given.temperature,
        softcap=given.softcap,
    ).logps
    policy = given.policy
    out = policy_loss(
        *(logps, policy.advantages, policy.offsets),
        scale=policy.scale,
        old=policy.old,
        ref=policy.ref,
        spec=policy.variant,
    )
    torch.testing.assert_close(reference.forward(given.call), out.loss, rtol=1e-12, atol=1e-14)
