"""The kernels against fp64: dtypes, widths, layouts, and the logits that break a naive softmax."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrgkern import token_logps
from rrgkern.logps import csrc_launch
from rrgkern.logps.reference import token_logps_reference, token_logps_reference_backward
from tests.products import more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_logits_oracle import Outcome, Problem, check, problem, run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


def through_op(given: Problem, entropy: bool) -> Outcome:
    """The public function: Triton, in its interpreter where there is no GPU."""

    def function(logits: Tensor, targets: Tensor, temperature: float, entropy: bool):
        return token_logps(logits, targets, temperature=temperature, entropy=entropy)

    return run(function, given, entropy=entropy)


def compiled_cpu(given: Problem, entropy: bool) -> Outcome:
    """The CPU kernel, which the interpreter's registration hides from the op in these tests."""
    logits, targets = given.logits.cpu(), given.targets.cpu().reshape(-1)
    stats = csrc_launch.token_logps_fwd(logits, targets, given.temperature, entropy)
    gradient = csrc_launch.token_logps_bwd(
        given.coef.cpu().reshape(-1),
        given.coef_entropy.cpu().reshape(-1) if entropy else None,
        *(logits, targets, *stats, given.temperature),
    )
    shape = given.targets.shape
    entropies = stats.entropy.view(shape) if entropy else stats.entropy
    return Outcome(*(x.to(DEVICE) for x in (stats.logps.view(shape), entropies, gradient)))


kernels = pytest.mark.parametrize("kernel", [through_op, compiled_cpu])


@kernels
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, *more(torch.float64, torch.float16)]
)
@pytest.mark.parametrize("vocabulary", [1, 515, 9000, *more(2, 17, 4096)])
def test_widths_and_dtypes(kernel, dtype, vocabulary):
    given = problem(7, vocabulary, dtype=dtype)
    check(kernel(given, True), given)


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.3, *more(1.0, 2.5)])
def test_without_entropy(kernel, dtype, temperature):
    given = problem(6, 600, dtype=dtype, temperature=temperature)
    check(kernel(given, False), given, entropy=False)


@kernels
@pytest.mark.parametrize("vocabulary", more(32001, 151665, 151936))
def test_real_vocabularies(kernel, vocabulary):
    given = problem(2, vocabulary, dtype=torch.bfloat16, temperature=1.0, seed=3)
    given.coef.fill_(-0.5)
    check(kernel(given, True), given)


@kernels
@pytest.mark.parametrize("hidden_columns", [slice(0, 2048), slice(3000, 5000), slice(5, 5000)])
def test_columns_of_minus_infinity(kernel, hidden_columns):
    given = problem(6, 5000)
    given.logits[:, hidden_columns] = -torch.inf
    given.targets.fill_(2)
    given.logits[:, 2] = 0.5
    outcome = kernel(given, True)
    check(outcome, given, exponential_ulps=2)
    hidden = outcome.gradient[:, hidden_columns].clone()
    hidden[:, : max(0, 3 - hidden_columns.start)] = 0
    assert (hidden == 0).all()


@kernels
def test_a_target_of_minus_infinity(kernel):
    given = problem(4, 50)
    given.logits.scatter_(1, given.targets[:, None], -torch.inf)
    given.coef_entropy.zero_()
    outcome = kernel(given, True)
    assert (outcome.logps == -torch.inf).all()
    expected = -torch.softmax(given.logits.double() / given.temperature, 1)
    expected.scatter_(1, given.targets[:, None], 1.0)
    expected *= (given.coef.double() / given.temperature)[:, None]
    torch.testing.assert_close(outcome.gradient.double(), expected, rtol=1e-5, atol=1e-7)


@kernels
@pytest.mark.parametrize("offset", [90.0, *more(-120.0, -3e4)])
def test_an_offset_common_to_all_logits(kernel, offset):
    given = problem(6, 700, temperature=1.0)
    given = given._replace(logits=(given.logits + offset))
    check(kernel(given, True), given, exponential_ulps=2)


@kernels
@pytest.mark.parametrize("margin", [20.0, 80.0, *more(5.0, 40.0)])
@pytest.mark.parametrize("on_target", [True, False])
def test_collapsed_softmax(kernel, margin, on_target):
    given = problem(6, 900, temperature=1.0)
    favourite = given.targets if on_target else (given.targets + 1) % 900
    logits = given.logits.clamp(-3, 3).scatter(1, favourite[:, None], margin)
    given = given._replace(logits=logits)
    outcome = kernel(given, True)
    check(outcome, given)
    if on_target:
        assert (outcome.logps < 0).all()


@kernels
def test_temperatures_that_saturate(kernel):
    for temperature in (0.01, 100.0):
        given = problem(6, 300, temperature=temperature)
        check(kernel(given, True), given)


@kernels
@pytest.mark.parametrize("layout", ["shifted", "transposed", "every other", "[B, L, V]"])
def test_layouts_are_read_where_they_lie(kernel, layout):
    given = problem(2, 4, 96)
    wide = problem(2, 5, 192, seed=5).logits
    logits = {
        "shifted": wide[:, :-1, :96],
        "transposed": given.logits.transpose(1, 2).contiguous().transpose(1, 2),
        "every other": wide[:, 1:, ::2],
        "[B, L, V]": given.logits,
    }[layout]
    given = given._replace(logits=logits)
    outcome = kernel(given, True)
    assert outcome.gradient.shape == logits.shape
    check(outcome, given)


def test_more_than_three_dimensions():
    given = problem(2, 3, 2, 33)
    check(through_op(given, True), given)
    one = problem(33)
    check(through_op(one, True), one)


# The reference: its explicit backward is the derivative of its forward, in fp64.
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
