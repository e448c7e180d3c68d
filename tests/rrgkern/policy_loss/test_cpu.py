"""csrc's policy loss: each instruction set, any number of threads, with and without autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss, dispatch, policy_loss
from rrgkern.ops import flatten
from rrgkern.policy_loss import csrc_launch
from rrgkern.policy_loss.from_logits import op as from_logits
from rrgkern.policy_loss.op import policy_loss_fwd
from rrgkern.policy_loss.reference import policy_loss_reference
from tests.rrgkern.backends import by_threads, csrc_alone, each_isa
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss import test_kernel as kernel
from tests.rrgkern.policy_loss.cases import Batch, batch, check_fp32
from tests.rrgkern.policy_loss.from_logits import cases
from tests.rrgkern.policy_loss.test_api import BAD, call

isa = each_isa
LEVELS = ("token", "sequence", "sequence_token")
pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors")


def serve(data: Batch, spec: PolicyLoss) -> tuple[Tensor, ...]:
    return csrc_launch.launch(*data.arguments(spec))


def test_fp64_equals_the_reference(isa) -> None:
    for spec, data in kernel.CASES:
        for got, want in zip(
            serve(data, spec), policy_loss_reference(*data.arguments(spec)), strict=True
        ):
            torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-14, msg=str(spec))


def test_fp32_is_as_close_to_the_truth_as_eager(isa) -> None:
    for spec, data in kernel.FP32_CASES:
        check_fp32(spec, data, serve(data.to(torch.float32), spec))


def test_fp32_over_several_chunks(isa) -> None:
    kernel.test_fp32_over_several_blocks(csrc_launch.launch)


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0), (1,), (4, 0, 0), (257,)])
@pytest.mark.parametrize("level", LEVELS)
def test_odd_lengths(isa, lengths: tuple[int, ...], level: str) -> None:
    kernel.test_odd_lengths(lengths, level, csrc_launch.launch)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf, 1e30])
@pytest.mark.parametrize("surrogate", ["clip", "sapo", "vespo"])
def test_nothing_at_a_masked_position_changes_a_bit(isa, poison: float, surrogate: str) -> None:
    kernel.test_nothing_at_a_masked_position_changes_a_bit(csrc_launch.launch, poison, surrogate)


def test_a_nan_that_is_scored_shows(isa) -> None:
    data = batch(3, dtype=torch.float32, lengths=(5, 40), device="cpu", mask=False)
    logps = data.logps.clone()
    logps[20] = torch.nan
    loss, coef, _, metrics = serve(data.changed(logps=logps, on_policy=None), PolicyLoss())
    assert loss.isnan() and coef[20].isnan() and coef[:20].isfinite().all()
    assert metrics[3].isnan() and metrics[4].isnan()


def test_the_bits_do_not_depend_on_the_number_of_threads(isa, monkeypatch) -> None:
    for level in LEVELS:
        spec = PolicyLoss(ratio_level=level, beta=0.1, sampler_level="sequence")
        data = batch(1, dtype=torch.float32, lengths=(300, 1, 90_000, 700), device="cpu")
        results = by_threads(monkeypatch, lambda: serve(data, spec), 1, 2, 5)  # noqa: B023
        for got in results[1:]:
            assert all(map(torch.equal, got, results[0]))


DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@pytest.mark.parametrize("spec", [cases.EVERYTHING, cases.NO_ENTROPY])
def test_from_logits_on_every_instruction_set_and_number_of_threads(isa, spec, monkeypatch) -> None:
    for dtype in DTYPES:
        given = cases.problem(3, 9001, dtype=dtype)
        call = cases.call_of(given, spec)
        results = by_threads(
            monkeypatch,
            lambda: from_logits.anew_by_csrc(*flatten(call), True),  # noqa: B023
            *(1, 3),
        )
        assert all(map(torch.equal, *results))
        cases.check(results[0], given, spec)


@pytest.mark.parametrize("vocabulary", [2, 17, 2047, 2048, 2049, 6144, 6151])
def test_blocks_of_columns_with_maxima_of_their_own(isa, vocabulary: int) -> None:
    for dtype in DTYPES:
        given = cases.rising_problem(vocabulary, dtype)
        call = cases.call_of(given, cases.NO_ENTROPY)
        anew = from_logits.anew_by_csrc(*flatten(call), True)
        cases.check(anew, given, cases.NO_ENTROPY)
        over = call._replace(logits=call.logits.clone())
        from_logits.inplace_by_csrc(*flatten(over))
        assert torch.equal(over.logits, anew.gradient)


@pytest.mark.parametrize("spec", [cases.EVERYTHING, cases.NO_ENTROPY])
def test_the_gradient_of_a_row_from_logits_is_the_same_alone(isa, spec) -> None:
    given = cases.problem(5, 3001, lengths=(6, 3), mask=False, on_policy=False)
    call = cases.call_of(given, spec)
    whole = from_logits.anew_by_csrc(*flatten(call), True)
    for row in range(9):
        here, sequence = slice(row, row + 1), slice(int(row >= 6), int(row >= 6) + 1)
        names = ("old", "ref", "sampler", "token_weight")
        policy = call.policy._replace(
            **{name: getattr(call.policy, name)[here] for name in names},
            advantages=call.policy.advantages[sequence],
            scale=call.policy.scale[sequence],
            offsets=torch.tensor([0, 1]),
        )
        one = call._replace(logits=call.logits[here], targets=call.targets[here], policy=policy)
        alone = from_logits.anew_by_csrc(*flatten(one), True)
        assert torch.equal(alone.gradient[0], whole.gradient[row])


@pytest.fixture
def csrc_serves(monkeypatch) -> None:
    csrc_alone(monkeypatch, policy_loss_fwd, csrc_launch.launch)


def test_eager_calls_csrc_directly_and_compilation_the_op(csrc_serves, monkeypatch) -> None:
    data = batch(1, dtype=torch.float32, device="cpu")
    spec = PolicyLoss(beta=0.1, entropy_coef=0.1)
    others = {"scale": data.scale, "old": data.old, "ref": data.ref, "spec": spec}

    def gradients(function) -> tuple[Tensor, ...]:
        logps, entropy = data.logps.clone().requires_grad_(), data.entropy.clone().requires_grad_()
        loss = function(logps, entropy)
        return (loss.detach(), *torch.autograd.grad(3 * loss, (logps, entropy)))

    def loss_of(logps: Tensor, entropy: Tensor) -> Tensor:
        return policy_loss(logps, data.advantages, data.offsets, entropy=entropy, **others).loss

    calls = []
    for name in ("as_passed", "loss_and_coefficients"):
        launch = getattr(csrc_launch, name)
        monkeypatch.setattr(
            csrc_launch, name, lambda *x, n=name, call=launch: calls.append(n) or call(*x)
        )
    assert dispatch.direct(policy_loss_fwd, data.logps) is csrc_launch.launch
    direct = gradients(loss_of)
    with torch.no_grad():
        assert torch.equal(loss_of(data.logps.requires_grad_(), data.entropy), direct[0])
    assert calls == ["as_passed"] * 2
    compiled = gradients(torch.compile(loss_of, fullgraph=True, backend="aot_eager"))
    assert calls[2:] == ["loss_and_coefficients"]
    for got, want in zip(compiled, direct, strict=True):
        assert torch.equal(got, want)
    monkeypatch.setattr(dispatch, "direct", lambda op, *tensors: op)
    monkeypatch.setattr("rrgkern.policy_loss.op.direct", lambda op, *tensors: op)
    for got, want in zip(gradients(loss_of), direct, strict=True):
        assert torch.equal(got, want)


def test_arguments_that_csrc_cannot_take_as_they_are_are_converted(csrc_serves, monkeypatch):
    """Where csrc says no, checks and conversions in Python lead to the same call."""
    data = batch(2, dtype=torch.float32, lengths=(5, 0, 40, 3), device="cpu")
    spec = PolicyLoss(beta=0.1, entropy_coef=0.1)
    ready = []
    launch = csrc_launch.as_passed
    monkeypatch.setattr(csrc_launch, "as_passed", lambda *x: ready.append(launch(*x)) or ready[-1])
    want = call(data, spec)
    assert [outputs is not None for outputs in ready] == [True]
    changes = {
        "old": torch.stack([data.old, data.old], 1)[:, 0],
        "ref": data.ref.double(),
        "advantages": data.advantages.double(),
        "logps": torch.stack([data.logps, data.logps], 1)[:, 1],
        "entropy": data.entropy.double(),
        "offsets": torch.stack([data.offsets, data.offsets], 1)[:, 0],
    }
    for name, value in changes.items():
        ready.clear()
        got = call(data, spec, **{name: value})
        assert ready[0] is None and ready[-1] is not None, name
        assert torch.equal(got.loss, want.loss), name
        assert got.metrics == want.metrics, name


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_one_clear_line_with_csrc_too(csrc_serves, change, error, message) -> None:
    with pytest.raises(error, match=message):
        call(batch(0, dtype=torch.float32, device="cpu"), **change)


def test_a_tensor_of_size_0_is_not_an_absent_one(csrc_serves) -> None:
    for name in ("old", "ref", "mask"):
        empty = torch.empty(0, dtype=torch.bool if name == "mask" else torch.float32)
        with pytest.raises(ValueError, match=rf"{name} has shape \(0,\)"):
            call(batch(0, device="cpu"), **{name: empty})


def test_what_watches_gets_the_op(csrc_serves) -> None:
    logps = torch.zeros(3)
    assert dispatch.direct(policy_loss_fwd, logps) is csrc_launch.launch
    with torch._subclasses.FakeTensorMode() as mode:
        assert dispatch.direct(policy_loss_fwd, mode.from_tensor(logps)) is policy_loss_fwd
        assert dispatch.direct(policy_loss_fwd, logps) is policy_loss_fwd
    seen = []
    torch.func.vmap(lambda x: seen.append(dispatch.direct(policy_loss_fwd, x)) or x)(logps)
    assert seen == [policy_loss_fwd]
    assert dispatch.direct(policy_loss_fwd, logps.to("meta")) is policy_loss_fwd
    assert dispatch.direct(policy_loss_fwd, torch._neg_view(logps)) is policy_loss_fwd


def test_a_tensor_without_memory_is_refused(csrc_serves) -> None:
    data = batch(0, dtype=torch.float32, device="cpu")
    with pytest.raises(ValueError, match="has no memory"):
        call(data, logps=torch._efficientzerotensor(len(data.logps)))


@pytest.mark.parametrize("sampler", [True, False])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("bounds", [(None, 0.5), (2.0, 3.0)])
def test_vespo_corrects_only_what_the_engine_sampled(isa, sampler, mode, bounds) -> None:
    data = batch(6, sampler=sampler, device="cpu")
    spec = PolicyLoss("vespo", sampler_mode=mode, sampler_min=bounds[0], sampler_max=bounds[1])
    want = policy_loss_reference(*data.arguments(spec))
    for part, of_reference in zip(serve(data, spec), want, strict=True):
        torch.testing.assert_close(part, of_reference, rtol=1e-12, atol=1e-14)


def test_offsets_that_lead_astray_are_refused() -> None:
    data = batch(1, dtype=torch.float32, device="cpu")
    offsets = data.offsets.clone()
    offsets[-1] += 1
    with pytest.raises(ValueError, match="offsets do not rise from 0 to"):
        serve(data.changed(offsets=offsets), PolicyLoss())
