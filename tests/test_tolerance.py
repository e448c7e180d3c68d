"""The yardstick itself: it accepts rounding and rejects each mutant it was made for."""

from __future__ import annotations

import pytest
import torch

from tests.tolerance import assert_close_to_truth


@pytest.fixture
def sample() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A softmax in bf16: (computed in fp32 and rounded once, eager bf16, truth)."""
    logits = (torch.randn(64, 257, generator=torch.Generator().manual_seed(0)) * 3).bfloat16()
    kernel = logits.float().softmax(-1).bfloat16()
    return kernel, logits.softmax(-1), logits.double().softmax(-1)


def test_accepts_correct_rounding(sample):
    assert_close_to_truth(*sample)


def test_accepts_correct_rounding_of_a_vector(sample):
    kernel, eager, truth = sample
    assert_close_to_truth(kernel[:, 0], eager[:, 0], truth[:, 0])


@pytest.mark.parametrize(
    "mutant",
    [torch.zeros_like, lambda x: x / 2, lambda x: -x, lambda x: x * 1.03, lambda x: x.roll(1, -1)],
    ids=["zero", "half", "sign", "3 %", "shifted"],
)
def test_rejects_a_mutant_in_one_row(sample, mutant):
    kernel, eager, truth = sample
    kernel = kernel.clone()
    kernel[17] = mutant(kernel[17])
    with pytest.raises(AssertionError, match="worst is row 17"):
        assert_close_to_truth(kernel, eager, truth)


def test_rejects_nan_and_missed_infinity(sample):
    kernel, eager, truth = sample
    poisoned = kernel.clone()
    poisoned[3, 5] = torch.nan
    with pytest.raises(AssertionError, match="worst is row 3"):
        assert_close_to_truth(poisoned, eager, truth)
    truth = truth.clone()
    truth[2, 1] = torch.inf
    with pytest.raises(AssertionError, match=r"infinite at \[2, 1\]"):
        assert_close_to_truth(kernel, eager, truth)


def test_a_nan_of_eager_allows_nothing(sample):
    kernel, eager, truth = sample
    eager = torch.full_like(eager, torch.nan)
    with pytest.raises(AssertionError, match="too far"):
        assert_close_to_truth(kernel * 1.1, eager, truth)


def test_refuses_mismatched_inputs(sample):
    kernel, eager, truth = sample
    with pytest.raises(AssertionError, match="float64"):
        assert_close_to_truth(kernel, eager, truth.float())
    with pytest.raises(AssertionError, match="dtype of the kernel"):
        assert_close_to_truth(kernel.float(), eager, truth)
    with pytest.raises(AssertionError, match="shapes differ"):
        assert_close_to_truth(kernel[:3], eager, truth)


def test_empty():
    empty = torch.empty(0, 5)
    assert_close_to_truth(empty, empty, empty.double())
    empty = torch.empty(5, 0)
    assert_close_to_truth(empty, empty, empty.double())
