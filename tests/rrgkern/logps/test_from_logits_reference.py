"""The reference: its explicit backward is the derivative of its forward, in fp64."""

from __future__ import annotations

import pytest
import torch

from rrgkern.logps.reference import token_logps_reference, token_logps_reference_backward


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_explicit_backward_is_the_derivative(temperature, with_entropy):
    torch.manual_seed(0)
    logits = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(11, (7,))
    coef, coef_entropy = torch.randn(2, 7, dtype=torch.float64)
    logps, entropy = token_logps_reference(logits, targets, temperature)
    objective = (coef * logps).sum()
    if with_entropy:
        objective = objective + (coef_entropy * entropy).sum()
    (expected,) = torch.autograd.grad(objective, logits)
    actual = token_logps_reference_backward(
        coef, coef_entropy if with_entropy else None, logits.detach(), targets, temperature
    )
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def test_forward_passes_gradcheck():
    torch.manual_seed(1)
    logits = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 8, 4, 4])
    assert torch.autograd.gradcheck(lambda z: token_logps_reference(z, targets, 0.8), (logits,))


def test_forward_is_log_softmax():
    torch.manual_seed(2)
    logits = 3 * torch.randn(5, 40, dtype=torch.float64)
    targets = torch.randint(40, (5,))
    logps, entropy = token_logps_reference(logits, targets, 0.5)
    expected = torch.log_softmax(logits / 0.5, -1)
    torch.testing.assert_close(logps, expected.gather(1, targets[:, None])[:, 0])
    torch.testing.assert_close(entropy, -(expected.exp() * expected).sum(1))


def test_rows_without_coefficient_have_gradient_zero_even_where_nan():
    logits = torch.randn(3, 6, dtype=torch.float64)
    logits[1] = torch.nan
    coef = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    gradient = token_logps_reference_backward(
        coef, torch.zeros_like(coef), logits, torch.tensor([1, 2, 3])
    )
    assert (gradient[1] == 0).all() and gradient[[0, 2]].isfinite().all()
