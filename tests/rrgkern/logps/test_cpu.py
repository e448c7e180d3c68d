"""csrc's rows of logits: each instruction set, any number of threads, any batch, one contract."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from torch import Tensor

from rrgkern import csrc, linear_token_logps, token_logps
from rrgkern.logps import csrc_launch
from rrgkern.logps.from_hidden import CSRC_TILES, TORCH_TILES, fwd
from rrgkern.logps.inputs import FromLogits
from rrgkern.logps.reference import softmax_stats_reference
from tests.rrgkern.backends import each_isa
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_logits_oracle import Problem, check, problem
from tests.rrgkern.logps.test_from_logits_accuracy import compiled_cpu, through_op

isa = each_isa
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set_meets_the_contract(isa, dtype):
    # Widths around a vector's lanes and around a block of columns.
    for vocabulary in (1, 3, 16, 33, 600, 4096, 4097, 12321):
        given = problem(4, vocabulary, dtype=dtype)
        for entropy in (True, False):
            check(compiled_cpu(given, entropy), given, entropy=entropy)


def test_exp_is_within_two_units_in_the_last_place(isa):
    # The gradient with coefficient -1 and statistics of 0 is exp(z).
    for dtype, lowest in ((torch.float32, -87.0), (torch.float64, -700.0)):
        z = torch.linspace(lowest, 0, 200_001, dtype=dtype)[None]
        zero = torch.zeros(1, dtype=dtype)
        csrc.load().tile_gradient_cpu(
            *(z_of := z.clone(), torch.tensor([-1]), 0, 1.0, zero - 1, csrc_launch.NOTHING),
            *(zero, zero[:0], zero, zero, 1),
        )
        exact = z.double().exp()
        # torch's own fp64 exponential is within one unit of the truth itself.
        units = (z_of.double() - exact).abs() / (torch.finfo(dtype).eps * exact)
        assert units.max() < (1.5 if dtype == torch.float32 else 2.0), units.max()


def test_logarithms_are_within_two_units_in_the_last_place(isa):
    def stats_of(z: Tensor) -> tuple[Tensor, Tensor]:
        stats = csrc_launch.token_logps_fwd(z, torch.zeros(len(z), dtype=torch.int64), 1.0, False)
        return stats.logps, stats.lognorm

    # Beside a target far below, the norm is the logarithm of the number of equal columns.
    for count in (1, 2, 3, 7, 50, 363, 364, 1000, 12345):
        z = torch.zeros(1, 1 + count, dtype=torch.float64)
        z[0, 0] = -500.0
        assert abs(stats_of(z)[1].item() - math.log(count)) <= 2.3e-16 * math.log(count) + 1e-200
    # Against one other column the log-probability is -log1p(exp(-lead)).
    lead = torch.linspace(0, 700, 20_011, dtype=torch.float64)
    got = -stats_of(torch.stack([lead, torch.zeros_like(lead)], 1))[0]
    exact = torch.log1p(torch.exp(-lead))
    assert ((got - exact).abs() <= 4 * torch.finfo(torch.float64).eps * exact).all()


def test_minus_infinity_and_far_logits_have_probability_0(isa):
    z = torch.tensor([[0.0, -torch.inf, -120.0, -1e4, -3e38]])
    stats = csrc_launch.token_logps_fwd(z, torch.tensor([0]), 1.0, True)
    gradient = csrc_launch.token_logps_bwd(torch.ones(1), None, z, torch.tensor([0]), *stats, 1.0)
    assert stats.logps == 0 and stats.entropy == 0 and (gradient == 0).all()


def test_probabilities_below_the_least_normal_number(isa):
    z = torch.tensor([[0.0, 720.0], [0.0, 708.5]], dtype=torch.float64)
    for target in (0, 1):
        targets = torch.full((2,), target)
        stats = csrc_launch.token_logps_fwd(z, targets, 1.0, True)
        wanted = -torch.log1p(torch.exp(-z[:, 1])) - (0 if target else z[:, 1])
        torch.testing.assert_close(stats.logps, wanted, rtol=1e-9, atol=0)
        torch.testing.assert_close(
            stats.entropy, (1 + z[:, 1]) * torch.exp(-z[:, 1]), rtol=1e-9, atol=0
        )


@pytest.mark.parametrize("serve", ["rows", "tiles", "PyTorch's tiles"])
def test_the_entropy_survives_a_maximum_far_above_the_earlier_ones(isa, serve):
    z = 0.1 * (torch.arange(4096, dtype=torch.float64) % 7)[None]
    z[0, :2048] = torch.finfo(torch.float64).min
    targets = torch.tensor([3000])
    if serve == "rows":
        found = csrc_launch.token_logps_fwd(z, targets, 1.0, True).entropy
    else:
        tiles = CSRC_TILES if serve == "tiles" else TORCH_TILES
        one = torch.ones(1, 1, dtype=torch.float64)
        found = fwd(tiles, one, z.T.contiguous(), None, targets, 1.0, 0.0, True).entropy
    p = torch.softmax(z[0, 2048:], 0)
    torch.testing.assert_close(found[0], -(p * p.log()).sum())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_of_16_bits_are_those_of_32_rounded(isa, dtype):
    given = problem(6, 4099, dtype=dtype)
    wide = compiled_cpu(given._replace(logits=given.logits.float()), True)
    narrow = compiled_cpu(given, True)
    assert torch.equal(narrow.logps, wide.logps) and torch.equal(narrow.entropy, wide.entropy)
    assert torch.equal(narrow.gradient, wide.gradient.to(dtype))


def outcome_bits(given: Problem) -> list[Tensor]:
    return [part.clone() for part in compiled_cpu(given, True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bits_do_not_depend_on_the_number_of_threads(isa, dtype, monkeypatch):
    given = problem(23, 9001, dtype=dtype)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = outcome_bits(given)
    for threads in (2, 3, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for got, want in zip(outcome_bits(given), alone, strict=True):
            assert torch.equal(got, want)


def reference(given: Problem, entropy: bool) -> tuple[Tensor, ...]:
    call = FromLogits(given.logits, given.targets.reshape(-1), given.temperature, entropy)
    return softmax_stats_reference(call)[:2]


@pytest.mark.parametrize("kernel", [compiled_cpu, through_op, reference])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_alone_and_in_any_batch(kernel, dtype):
    given = problem(9, 5003, dtype=dtype)
    whole = kernel(given, True)
    for row in range(9):
        one = Problem(*(part[row : row + 1] for part in given[:-1]), given.temperature)
        for got, want in zip(kernel(one, True), whole, strict=True):
            assert torch.equal(got[0], want[row])
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    shuffled = Problem(*(part[order] for part in given[:-1]), given.temperature)
    for got, want in zip(kernel(shuffled, True), whole, strict=True):
        assert torch.equal(got, want[order])


def test_two_callers_at_once(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    given = problem(23, 9001)
    expected, found = outcome_bits(given), []

    def call() -> None:
        found.extend(all(map(torch.equal, outcome_bits(given), expected)) for _ in range(5))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [True] * 15


def test_an_instruction_set_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("RRGKERN_CPU", "sse9")
    with pytest.raises(ValueError, match="RRGKERN_CPU is 'sse9', wanted portable, avx2 or avx512"):
        compiled_cpu(problem(2, 5), True)


@pytest.mark.parametrize("name", ["coef", "logps"])
def test_a_wrong_launcher_is_refused(name):
    given = problem(3, 8)
    stats = csrc_launch.token_logps_fwd(given.logits, given.targets, 1.0, False)
    arguments = [given.coef, None, given.logits, given.targets, *stats, 1.0]
    arguments[{"coef": 0, "logps": 4}[name]] = torch.zeros(2)
    with pytest.raises(ValueError, match=f"{name} has the wrong shape"):
        csrc_launch.token_logps_bwd(*arguments)
    arguments[{"coef": 0, "logps": 4}[name]] = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(TypeError, match=f"{name} has another dtype"):
        csrc_launch.token_logps_bwd(*arguments)


@pytest.mark.parametrize("parts", [(-1, 1), (1, -1)])
def test_a_lazily_negated_gradient_from_above_has_its_sign(parts):
    logits, targets, above = torch.randn(4, 6, requires_grad=True), torch.arange(4), torch.randn(4)
    negated = [torch._neg_view(above) if sign < 0 else above for sign in parts]
    for output in (
        lambda: token_logps(logits, targets, entropy=True),
        lambda: linear_token_logps(logits, torch.eye(6), targets, entropy=True),
    ):
        (lazy,) = torch.autograd.grad(output(), logits, negated)
        (want,) = torch.autograd.grad(output(), logits, [sign * above for sign in parts])
        assert torch.equal(lazy, want)


def test_gradients_in_a_batch_are_those_one_by_one():
    logits, targets, above = (
        torch.randn(4, 6, requires_grad=True),
        torch.arange(4),
        torch.randn(3, 4),
    )
    for output in (
        lambda: token_logps(logits, targets).logps,
        lambda: linear_token_logps(logits, torch.eye(6), targets).logps,
    ):
        (batched,) = torch.autograd.grad(output(), logits, above, is_grads_batched=True)
        for one, want in zip(above, batched, strict=True):
            assert torch.equal(torch.autograd.grad(output(), logits, one)[0], want)
