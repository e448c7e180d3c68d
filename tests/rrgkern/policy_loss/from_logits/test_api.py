"""The public function: autograd, use in place, composition, compilation, and its error lines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rrgkern import PolicyLoss, policy_loss_from_logits, token_logps
from rrgkern.policy_loss.from_logits.op import (
    policy_loss_from_logits_fwd,
    policy_loss_from_logits_fwd_,
    policy_loss_from_logits_scale_,
)
from rrgkern.policy_loss.from_logits.reference import from_logits_reference
from rrgkern.policy_loss.reference import METRICS
from tests.operators import Operators
from tests.products import more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.from_logits.cases import EVERYTHING, Problem, arguments, problem

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
COMPOSED = {
    "sequence": PolicyLoss(ratio_level="sequence", beta=0.1, entropy_coef=0.05),
    "sampler per sequence": PolicyLoss(sampler_level="sequence"),
    "vespo": PolicyLoss(surrogate="vespo"),
}


def call(given: Problem, spec: PolicyLoss = EVERYTHING, **changes: Any) -> Any:
    data = given.data if given.logits.dtype == torch.float64 else given.data.to(torch.float32)
    named = {name: getattr(data, name) for name in ("advantages", "offsets", "scale", "old", "ref")}
    named |= {
        name: getattr(data, name) for name in ("sampler", "token_weight", "on_policy", "mask")
    }
    everything = {"logits": given.logits, "targets": given.targets, **named} | changes
    return policy_loss_from_logits(
        **({"temperature": given.temperature, "spec": spec} | everything)
    )


def produced(logits: Tensor) -> tuple[Tensor, Tensor]:
    """A leaf and logits computed from it by a layer that does not need them afterwards."""
    leaf = logits.detach().clone().requires_grad_()
    return leaf, leaf * 1


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    "spec",
    [EVERYTHING, COMPOSED["sequence"], *more(*list(COMPOSED.values())[1:])],
    ids=["fused", *COMPOSED],
)
def test_gradients_carry_the_upstream_gradient(spec: PolicyLoss, inplace: bool) -> None:
    given = problem(0, dtype=torch.float64)
    want = from_logits_reference(*arguments(given, spec))
    for factor in (1.0, -3.0):
        leaf, logits = produced(given.logits)
        out = call(given, spec, logits=logits, inplace=inplace)
        (out.loss * factor).backward()
        torch.testing.assert_close(out.loss.detach(), want[0], rtol=1e-11, atol=1e-14)
        torch.testing.assert_close(leaf.grad, factor * want[1], rtol=1e-9, atol=1e-13)
        assert (leaf.grad[~given.data.mask] == 0).all()
        assert list(out.metrics) == list(METRICS)
        for name, value in zip(METRICS, want[3], strict=True):
            assert out.metrics[name].shape == () and not out.metrics[name].requires_grad
            torch.testing.assert_close(out.metrics[name], value, rtol=1e-11, atol=1e-13)
        assert (logits._version > 0) == inplace


def test_on_policy_ratios_are_exactly_one() -> None:
    given = problem(2, 300, dtype=torch.bfloat16, old=False, sampler=False)
    metrics = call(given, PolicyLoss()).metrics
    for name in ("ratio_mean", "ratio_max", "effective_sample_size"):
        assert metrics[name] == 1


@pytest.mark.parametrize("spec", [PolicyLoss(), COMPOSED["sequence"]])
def test_in_place_writes_over_the_logits(spec: PolicyLoss) -> None:
    given = problem(3)
    leaf, logits = produced(given.logits)
    address = logits.data_ptr()
    seen: list[int] = []
    logits.register_hook(lambda gradient: seen.append(gradient.data_ptr()))
    out = call(given, spec, logits=logits, inplace=True)
    fused = spec.ratio_level == "token"
    assert torch.equal(logits, leaf) != fused
    out.loss.backward()
    assert seen == [address] and torch.equal(leaf.grad, logits)


@pytest.mark.parametrize("inplace", [False, True])
def test_a_second_backward_raises_one_line(inplace: bool) -> None:
    given = problem(3)
    specs = [PolicyLoss(), COMPOSED["sequence"]] if inplace else [PolicyLoss()]
    for spec in specs:
        _, logits = produced(given.logits)
        loss = call(given, spec, logits=logits, inplace=inplace).loss
        loss.backward(retain_graph=True)
        with pytest.raises(
            RuntimeError, match="a second backward through one policy_loss"
        ) as caught:
            loss.backward()
        assert "\n" not in str(caught.value)


def test_composed_in_new_memory_a_second_backward_works() -> None:
    given = problem(3)
    leaf, logits = produced(given.logits)
    loss = call(given, COMPOSED["sequence"], logits=logits).loss
    loss.backward(retain_graph=True)
    once = leaf.grad.clone()
    loss.backward()
    torch.testing.assert_close(leaf.grad, 2 * once)


def test_who_saved_the_logits_before_raises() -> None:
    given = problem(4)
    _, logits = produced(given.logits)
    saved = token_logps(logits, given.targets).logps.sum()
    call(given, logits=logits, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


@pytest.mark.parametrize("spec", [PolicyLoss(), COMPOSED["sequence"]])
def test_overwritten_logits_are_refused(spec: PolicyLoss) -> None:
    given = problem(4)
    _, logits = produced(given.logits)
    call(given, spec, logits=logits, inplace=True).loss.backward()
    for inplace in (False, True):
        with pytest.raises(
            ValueError, match="logits holds the gradient .* compute the logits anew"
        ):
            call(given, spec, logits=logits.view_as(logits), inplace=inplace)
    logits.detach().copy_(given.logits)
    assert call(given, spec, logits=logits, inplace=True).loss.isfinite()


@pytest.mark.parametrize("spec", [PolicyLoss(), COMPOSED["sequence"]])
def test_parts_of_one_tensor_may_be_overwritten_before_the_first_backward(spec: PolicyLoss) -> None:
    given = problem(5, lengths=(3, 4), mask=False)
    leaf, both = produced(torch.stack([given.logits, given.logits.flip(0)]))
    wanted, halves = (
        sum(call(given, spec, logits=whole[i], inplace=inplace).loss for i in range(2))
        for whole, inplace in ((leaf, False), (both, True))
    )
    assert torch.equal(wanted, halves)
    (found,), (expected,) = torch.autograd.grad(halves, leaf), torch.autograd.grad(wanted, leaf)
    assert torch.equal(found, expected) and found[1].any()


@pytest.mark.parametrize("spec", [PolicyLoss(), COMPOSED["sequence"]])
def test_a_gradient_over_which_others_have_written_is_not_trusted(spec: PolicyLoss) -> None:
    given = problem(5, lengths=(3, 4), mask=False)

    def held() -> tuple[Tensor, Tensor]:
        _, both = produced(torch.stack([given.logits, given.logits]))
        return both, call(given, spec, logits=both[0], inplace=True).loss

    both, loss = held()
    both[1].detach().mul_(2)
    others = [loss]
    both, loss = held()
    both[0].detach().mul_(2)
    call(given, spec, logits=both[1], inplace=True)  # begins a record of its own
    others.append(loss)
    if spec != PolicyLoss():  # which has not written yet, so that another call may
        both, loss = held()
        call(given, logits=both[0], inplace=True)
        others.append(loss)
    for loss in others:
        with pytest.raises(RuntimeError, match="modified by an inplace operation.*inplace=False"):
            loss.backward()


def test_parts_that_cannot_be_overwritten_are_told_their_reason() -> None:
    given = problem(5, lengths=(3, 4), mask=False)
    stacked = torch.stack([given.logits, given.logits])
    views = {
        "chunk": lambda y: [part[0] for part in y.chunk(2)],
        "split": lambda y: y.view(-1, y.shape[-1]).split(y.shape[1]),
        "unbind": lambda y: y.unbind(),
    }
    for name, parts_of in views.items():
        _, second = parts_of(produced(stacked)[1])
        assert call(given, logits=second, inplace=True).loss.isfinite(), name  # alone it is served
        first, second = parts_of(produced(stacked)[1])
        call(given, logits=first, inplace=True)
        for inplace in (False, True):
            with pytest.raises(ValueError, match=r"by chunk\(\).*pass slices y\[a:b\] in place"):
                call(given, logits=second, inplace=inplace)
    rows = produced(stacked)[1].view(-1, stacked.shape[-1])
    call(given, logits=rows[::2], inplace=True)
    with pytest.raises(ValueError, match=r"or lies between its rows; .*pass a range y\[a:b\]"):
        call(given, logits=rows[1::2], inplace=True)
    rows = produced(stacked)[1].view(-1, stacked.shape[-1])
    losses = [
        call(given, COMPOSED["sequence"], logits=rows[i::2], inplace=True).loss for i in (0, 1)
    ]
    with pytest.raises(RuntimeError, match=r"or lie between the rows of, others.*y\[a:b\]"):
        sum(losses).backward()


def test_without_gradient_nothing_is_written() -> None:
    given = problem(6)
    leaf, logits = produced(given.logits)
    with torch.no_grad():
        out = call(given, logits=logits, inplace=True)
    assert torch.equal(logits, leaf) and not out.loss.requires_grad
    assert torch.equal(call(given, inplace=True).loss, out.loss)
    assert torch.equal(call(given, logits=leaf * 1).loss.detach(), out.loss)


def test_the_entropy_is_reported_when_asked_for() -> None:
    given = problem(8)
    plain, watched = call(given, PolicyLoss()), call(given, PolicyLoss(), entropy=True)
    assert torch.equal(plain.loss, watched.loss)
    assert plain.metrics["entropy"] == 0 and watched.metrics["entropy"] > 0


def test_opcheck() -> None:
    given = problem(1, 17, lengths=(2, 0, 3))
    torch.library.opcheck(policy_loss_from_logits_fwd, (*arguments(given, EVERYTHING), True))
    torch.library.opcheck(policy_loss_from_logits_fwd_, arguments(given, EVERYTHING))
    bare = problem(1, 17, lengths=(2, 0), old=False, sampler=False, mask=False, on_policy=False)
    quick = ("test_schema", "test_faketensor")
    for with_gradient in (True, False):
        inputs = (*arguments(bare, PolicyLoss(beta=0.1)), with_gradient)
        torch.library.opcheck(policy_loss_from_logits_fwd, inputs, test_utils=quick)


def test_opcheck_of_the_factor() -> None:
    active = torch.tensor([True, False, True], device=DEVICE)
    gradient, factor = torch.randn(3, 9, device=DEVICE), torch.tensor(2.0, device=DEVICE)
    torch.library.opcheck(policy_loss_from_logits_scale_, (gradient, active, factor))


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"targets": torch.ones(20).int()}, TypeError, "targets is torch.int32"),
    ({"targets": torch.ones(19).long()}, ValueError, r"\[20, 37\] and targets \[19\]"),
    ({"logits": torch.ones(20, 0)}, ValueError, r"\[20, 0\]"),
    ({"logits": torch.ones(20, 37, device="meta")}, ValueError, "targets is on cpu"),
    ({"temperature": 0.0}, ValueError, "temperature is 0.0"),
    ({"advantages": torch.ones(5)}, ValueError, r"advantages .* \(5,\) and targets \(20,\)"),
    ({"offsets": torch.tensor([0, 5, 5, 11, 12, 19, 19])}, ValueError, "from 0 to 19"),
]


@pytest.mark.skipif(DEVICE != "cpu", reason="tensors of the CPU")
@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_one_clear_line(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        call(problem(0), **change)
    assert "\n" not in str(caught.value)


def test_in_place_refuses_what_it_cannot_overwrite() -> None:
    given = problem(0)
    leaf = given.logits.detach().clone().requires_grad_()
    for logits in (leaf, leaf.view(1, 20, 37)[0]):
        with pytest.raises(ValueError, match="a leaf that requires grad"):
            call(given, logits=logits, inplace=True)
    one_row = (leaf[:1] * 1).expand(20, 37)
    windows = (leaf * 1).flatten().as_strided((20, 37), (36, 1))
    for shared in (one_row, windows):
        with pytest.raises(ValueError, match="rows share memory"):
            call(given, logits=shared, inplace=True)
    every_second_row = torch.stack([leaf, leaf], 1)[:, 0]
    assert torch.equal(call(given, logits=every_second_row, inplace=True).loss, call(given).loss)


# In place on whole logits and on a slice of them: both gradients are right, one costs memory.
ROWS, LENGTH, VOCABULARY = 2, 5, 33
SPECS = {"one pass": PolicyLoss(), "composed": PolicyLoss(ratio_level="sequence")}


def made(operator: Any, args: Any, result: Any) -> list[bool]:
    """Tensors of the logits' size that an operator made, not a view and not in place."""
    returned = zip(operator._schema.returns, tree_leaves(result), strict=False)
    new = [x for to, x in returned if isinstance(x, Tensor) and to.alias_info is None]
    return [True for x in new if x.numel() >= ROWS * LENGTH * VOCABULARY]


def gradient(spec: PolicyLoss, *, whole: bool, inplace: bool) -> tuple[Tensor, int]:
    """Return the gradient of [ROWS, LENGTH + 1, VOCABULARY] logits, and how many were `made`."""
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, LENGTH + 1, VOCABULARY)
    leaf = torch.randn(shape, generator=generator).to(DEVICE).requires_grad_()
    targets = torch.randint(VOCABULARY, shape[:2], generator=generator).to(DEVICE)
    mask = (torch.arange(LENGTH + 1) < LENGTH).expand(shape[:2]).flatten().to(DEVICE)
    places = LENGTH + whole
    logits = leaf * 1
    loss = policy_loss_from_logits(
        logits if whole else logits[:, :-1],
        targets if whole else targets[:, :-1],
        torch.tensor([1.0, -0.5], device=DEVICE),
        torch.arange(0, ROWS * places + 1, places, device=DEVICE),
        scale=torch.full((ROWS,), 0.1, device=DEVICE),
        mask=mask if whole else None,
        spec=spec,
        inplace=inplace,
    ).loss
    with Operators(made) as seen:
        (found,) = torch.autograd.grad(loss, logits)
    return found, len(seen.noted)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_slice_has_the_right_gradient_and_whole_logits_cost_no_memory(spec: PolicyLoss) -> None:
    wanted, _ = gradient(spec, whole=False, inplace=False)
    assert wanted[:, -1].eq(0).all() and wanted[:, :-1].ne(0).any(-1).all()
    for whole in (True, False):
        found, count = gradient(spec, whole=whole, inplace=True)
        torch.testing.assert_close(found, wanted)
        assert (count == 0) == whole
