"""The reference: its explicit backward is the derivative of its forward, in fp64."""

from __future__ import annotations

import pytest
import torch

from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients
from rrgkern.logps.reference import (
    linear_token_logps_reference,
    linear_token_logps_reference_backward,
)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("softcap", [0.0, 4.0])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_explicit_backward_is_the_derivative(temperature, softcap, with_entropy):
    torch.manual_seed(0)
    hidden, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((7, 5), (11, 5), (11,))
    )
    targets = torch.randint(11, (7,))
    coef, coef_entropy = torch.randn(2, 7, dtype=torch.float64)
    logps, entropy = linear_token_logps_reference(
        hidden, weight, bias, targets, temperature, softcap
    )
    objective = (coef * logps).sum()
    if with_entropy:
        objective = objective + (coef_entropy * entropy).sum()
    expected = torch.autograd.grad(objective, (hidden, weight, bias))
    leaves = (leaf.detach() for leaf in (hidden, weight, bias))
    actual = linear_token_logps_reference_backward(
        Coefficients(coef, coef_entropy if with_entropy else None),
        FromHidden(*leaves, targets, temperature, softcap, entropy=True),
    )
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13)


def test_forward_is_the_log_softmax_of_the_head():
    torch.manual_seed(1)
    hidden = torch.randn(6, 8, dtype=torch.float64)
    weight = torch.randn(40, 8, dtype=torch.float64)
    targets = torch.randint(40, (6,))
    logps, entropy = linear_token_logps_reference(hidden, weight, None, targets, temperature=0.5)
    expected = torch.log_softmax(hidden @ weight.T / 0.5, -1)
    torch.testing.assert_close(logps, expected.gather(1, targets[:, None])[:, 0])
    torch.testing.assert_close(entropy, -(expected.exp() * expected).sum(1))


def test_forward_passes_gradcheck():
    torch.manual_seed(2)
    hidden = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 8, 4])
    assert torch.autograd.gradcheck(
        lambda h, w: linear_token_logps_reference(h, w, None, targets, 0.8, 3.0), (hidden, weight)
    )
