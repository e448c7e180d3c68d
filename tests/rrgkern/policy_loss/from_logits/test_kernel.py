"""Test the op (here the Triton kernel) and csrc's kernel for CPUs against the fp64 truth."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss
from rrgkern.logps.reference import token_logps_reference
from rrgkern.ops import flatten, pack
from rrgkern.policy_loss.from_logits import op as by_csrc
from rrgkern.policy_loss.from_logits import triton_launch
from rrgkern.policy_loss.from_logits.op import (
    policy_loss_from_logits_fwd,
    policy_loss_from_logits_fwd_,
    policy_loss_from_logits_scale_,
)
from rrgkern.policy_loss.from_logits.reference import from_logits_reference
from rrgkern.policy_loss.inputs import LogitsInputs
from rrgkern.policy_loss.reference import METRICS
from tests.products import first_of, more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.cases import name_of, sampled_variants
from tests.rrgkern.policy_loss.from_logits.cases import (
    EVERYTHING,
    Outcome,
    Problem,
    arguments,
    check,
    problem,
    token_level,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
CASES = token_level(stride=5)


def through_op(given: Problem, spec: PolicyLoss) -> Outcome:
    """Triton, in its interpreter where there is no GPU."""
    return Outcome(*policy_loss_from_logits_fwd(*arguments(given, spec), True))


def in_place(given: Problem, spec: PolicyLoss) -> Outcome:
    """The same, over the logits."""
    logits = given.logits.clone()
    loss, active, metrics = policy_loss_from_logits_fwd_(logits, *arguments(given, spec)[1:])
    return Outcome(loss, logits, active, metrics)


def on_cpu(given: Problem, spec: PolicyLoss) -> LogitsInputs:
    inputs = arguments(given, spec)
    return pack(LogitsInputs, [x.cpu() if isinstance(x, torch.Tensor) else x for x in inputs])


def compiled_cpu(given: Problem, spec: PolicyLoss) -> Outcome:
    """The CPU kernel, which the interpreter's registration hides from the op in these tests."""
    served = by_csrc.anew_by_csrc(*flatten(on_cpu(given, spec)), True)
    return Outcome(*(part.to(given.logits.device) for part in served))


kernels = pytest.mark.parametrize("kernel", [through_op, compiled_cpu])


@pytest.mark.parametrize(
    ("spec", "options"),
    first_of(CASES, 6),
    ids=[f"{i}-{name_of(spec)}" for i, (spec, _) in enumerate(CASES)],
)
def test_variants(spec: PolicyLoss, options: dict[str, bool]) -> None:
    for kernel in (through_op, compiled_cpu):
        given = problem(2, dtype=torch.bfloat16, **options)
        check(kernel(given, spec), given, spec)


def test_two_loads_ahead_give_the_bits_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one to five whole blocks, tails or none, and the target in each block in turn."""
    block, different = 1024, []
    for vocabulary in (block, 2 * block + 8, 3 * block, 4 * block, 5 * block + 8):
        rows = -(-vocabulary // block)
        given = problem(4, vocabulary, lengths=(rows,), mask=False)
        targets = torch.arange(rows, device=DEVICE) * block + 3
        given = given._replace(targets=targets)
        together = {}
        for ahead in (1, 2):
            monkeypatch.setattr(triton_launch, "AHEAD", ahead)
            together[ahead] = (*through_op(given, EVERYTHING), *in_place(given, EVERYTHING))
        if not all(map(torch.equal, together[1], together[2])):
            different.append(vocabulary)
    assert different == []


@kernels
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, *more(torch.float64, torch.float32, torch.float16)]
)
def test_dtypes(kernel, dtype: torch.dtype) -> None:
    for vocabulary in (1, 2, 515):
        given = problem(3, vocabulary, dtype=dtype)
        check(kernel(given, EVERYTHING), given, EVERYTHING)


@kernels
@pytest.mark.parametrize("vocabulary", [32001, *more(151665, 151936)])
def test_real_vocabularies(kernel, vocabulary: int) -> None:
    given = problem(4, vocabulary, dtype=torch.bfloat16, lengths=(2, 0, 1))
    given = given._replace(data=given.data.changed(mask=None))
    check(kernel(given, EVERYTHING), given, EVERYTHING)


@pytest.mark.parametrize("spec", [EVERYTHING, *more(PolicyLoss())])
def test_in_place_gives_the_same_bits(spec: PolicyLoss) -> None:
    given = problem(5, 700, dtype=torch.bfloat16)
    for got, want in zip(in_place(given, spec), through_op(given, spec), strict=True):
        assert torch.equal(got, want)
    call = on_cpu(given, spec)
    over = call._replace(logits=call.logits.clone())
    new = by_csrc.anew_by_csrc(*flatten(call), True)
    loss, active, metrics = by_csrc.inplace_by_csrc(*flatten(over))
    for got, want in zip((loss, over.logits, active, metrics), new, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("kernel", [through_op, in_place, compiled_cpu])
@pytest.mark.parametrize("poison", [torch.nan, *more(torch.inf, -torch.inf)])
def test_nothing_at_a_masked_row_changes_a_bit(kernel, poison: float) -> None:
    given = problem(7, 60, per_token=True)
    hidden = ~given.data.mask
    fields = ("advantages", "scale", "old", "ref", "sampler", "token_weight")
    poisoned = Problem(
        torch.where(hidden[:, None], poison, given.logits),
        torch.where(hidden, -100, given.targets),
        given.data.changed(
            **{name: torch.where(hidden, poison, getattr(given.data, name)) for name in fields}
        ),
        given.temperature,
    )
    clean, dirty = kernel(given, EVERYTHING), kernel(poisoned, EVERYTHING)
    assert hidden.any() and (dirty.gradient[hidden] == 0).all()
    for one, other in zip(clean, dirty, strict=True):
        assert torch.equal(one, other) and one.isfinite().all()


@pytest.mark.parametrize("kernel", [through_op, in_place, compiled_cpu])
def test_a_row_without_coefficient_is_not_read_for_its_gradient(kernel) -> None:
    given = problem(8, mask=False, on_policy=False, sampler=False)
    still = given.data.changed(advantages=torch.zeros_like(given.data.advantages))
    outcome = kernel(given._replace(data=still), PolicyLoss())
    assert (outcome.gradient == 0).all() and not outcome.active.any()
    # logp = -inf and a finite behaviour policy: the ratio is clamped, so there is no gradient.
    logits = given.logits.index_fill(0, torch.tensor([4], device=given.logits.device), 0.0)
    logits[4, given.targets[4]] = -torch.inf
    outcome = kernel(given._replace(logits=logits), PolicyLoss())
    assert not outcome.active[4] and (outcome.gradient[4] == 0).all()
    assert outcome.loss.isfinite()


@kernels
@pytest.mark.parametrize("layout", ["shifted", *more("transposed", "every other", "[B, L, V]")])
def test_layouts_are_read_where_they_lie(kernel, layout: str) -> None:
    flat = problem(9, 96, lengths=(4, 4), mask=False)
    wide = 3 * torch.randn(2, 5, 192, device=flat.logits.device)

    def laid_out() -> Problem:
        # A clone of its own, so that writing over the logits changes no other.
        logits = {
            "shifted": lambda: wide.clone()[:, :-1, :96],
            "transposed": lambda: flat.logits.t().contiguous().t(),
            "every other": lambda: wide.clone()[:, 1:, ::2],
            "[B, L, V]": lambda: flat.logits.clone().view(2, 4, 96),
        }[layout]()
        return flat._replace(logits=logits)

    given = laid_out()
    outcome = kernel(given, EVERYTHING)
    assert outcome.gradient.shape == given.logits.shape
    rows = outcome.gradient.reshape(8, 96)
    flattened = given._replace(logits=given.logits.reshape(8, 96))
    check(outcome._replace(gradient=rows), flattened, EVERYTHING)
    over = laid_out()
    policy_loss_from_logits_fwd_(*arguments(over, EVERYTHING))
    if kernel is through_op:
        assert torch.equal(over.logits, outcome.gradient)


@kernels
@pytest.mark.parametrize("lengths", [(), (0, 0), (1,)])
def test_few_rows(kernel, lengths: tuple[int, ...]) -> None:
    given = problem(10, 30, lengths=lengths, mask=False)
    outcome = kernel(given, PolicyLoss())
    assert outcome.gradient.shape == (sum(lengths), 30)
    tokens = outcome.metrics[METRICS.index("tokens")]
    assert tokens == sum(lengths) and (sum(lengths) or outcome.loss == 0)


def test_all_masked() -> None:
    given = problem(11)
    nothing = torch.zeros_like(given.data.keep)
    masked = given._replace(data=given.data.changed(mask=nothing))
    for kernel in (through_op, in_place, compiled_cpu):
        outcome = kernel(masked, EVERYTHING)
        assert outcome.loss == 0 and (outcome.metrics == 0).all() and (outcome.gradient == 0).all()


@pytest.mark.product
def test_many_sequences_are_counted_over_several_steps() -> None:
    # A program counts 256 offsets at a time for rows as short as these.
    lengths = tuple(int(i % 7 == 3) for i in range(600))
    given = problem(12, 8, lengths=lengths, mask=False)
    check(through_op(given, EVERYTHING), given, EVERYTHING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_upstream_factor(dtype: torch.dtype) -> None:
    gradient = torch.randn(6, 4000, dtype=dtype)
    active = torch.tensor([True, False, True, True, False, True])
    gradient[~active] = 0
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for factor in (1.0, -3.0, 0.1, torch.inf):
        for scale, device in (
            (policy_loss_from_logits_scale_, DEVICE),
            (by_csrc.scale_by_csrc, "cpu"),
        ):
            scaled = gradient.to(device, copy=True)
            scale(scaled, active.to(device), torch.tensor(factor, dtype=wide, device=device))
            expected = torch.where(active[:, None], gradient.to(wide) * factor, 0).to(dtype)
            # The interpreter cuts off where the hardware rounds to 16 bits.
            rounding = torch.finfo(dtype).eps if dtype == torch.bfloat16 and factor != 1 else 0
            torch.testing.assert_close(
                scaled.cpu(), expected, rtol=rounding, atol=0, equal_nan=True
            )  # 0 * inf


# The reference: its gradient is that of the two rooms under autograd, in fp64.
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
