"""The public function: gradients, layouts, micro-batches, compilation, and its error lines."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from rrgkern import PolicyLoss, loss_scale, off_policy_weight, policy_loss, top_entropy_weight
from rrgkern.policy_loss.reference import METRICS, policy_loss_reference
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.cases import LENGTHS, Batch, batch

TOKENS, SEQUENCES = sum(LENGTHS), len(LENGTHS)
SPEC = PolicyLoss(beta=0.1, entropy_coef=0.05, kl_ratio_weight=True)


def call(data: Batch, spec: PolicyLoss = SPEC, **changes: Any) -> Any:
    arguments = {name: getattr(data, name) for name in Batch.__dataclass_fields__} | changes
    return policy_loss(**arguments, spec=spec)


def test_on_policy_ratios_are_exactly_one() -> None:
    data = batch(0, dtype=torch.float32, old=False, sampler=False, mask=False)
    logps = data.logps.clone().requires_grad_()
    for level in ("token", "sequence_token"):
        out = call(data, PolicyLoss(ratio_level=level), logps=logps)
        for name in ("ratio_mean", "ratio_max", "effective_sample_size"):
            assert out.metrics[name] == 1
        assert out.metrics["clip_low"] == out.metrics["clip_high"] == 0
        sequence = torch.arange(SEQUENCES, device=DEVICE).repeat_interleave(data.offsets.diff())
        expected = -(data.advantages[sequence] * data.token_weight) * data.scale[sequence]
        (gradient,) = torch.autograd.grad(out.loss, logps)
        torch.testing.assert_close(gradient, expected, rtol=2e-7, atol=0)
        assert out.metrics["active_tokens"] == int((expected != 0).sum())


def test_gradients_carry_the_upstream_gradient() -> None:
    data = batch(1)
    logps, entropy = data.logps.clone().requires_grad_(), data.entropy.clone().requires_grad_()
    loss, coef, coef_entropy, metrics = policy_loss_reference(*data.arguments(SPEC))
    out = call(data, logps=logps, entropy=entropy)
    torch.testing.assert_close(out.loss.detach(), loss, rtol=1e-13, atol=0)
    (out.loss * -3.0).backward(retain_graph=True)
    torch.testing.assert_close(logps.grad, -3 * coef, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(entropy.grad, -3 * coef_entropy, rtol=1e-13, atol=1e-15)
    out.loss.backward()  # a second time through the same graph
    torch.testing.assert_close(logps.grad, -2 * coef, rtol=1e-12, atol=1e-15)
    assert list(out.metrics) == list(METRICS)
    for name, value in zip(METRICS, metrics, strict=True):
        assert out.metrics[name].shape == () and not out.metrics[name].requires_grad
        torch.testing.assert_close(out.metrics[name], value, rtol=1e-12, atol=1e-15)


def test_without_a_bonus_the_entropy_gets_no_gradient() -> None:
    data = batch(1)
    logps, entropy = data.logps.clone().requires_grad_(), data.entropy.clone().requires_grad_()
    out = call(data, PolicyLoss(beta=0.1), logps=logps, entropy=entropy)
    out.loss.backward()
    assert entropy.grad is None and logps.grad is not None
    assert out.metrics["entropy"] > 0


def test_metrics_are_reported_without_entering_the_loss() -> None:
    data = batch(1)
    plain = call(data, PolicyLoss(), ref=None, entropy=None)
    watched = call(data, PolicyLoss())
    assert torch.equal(plain.loss, watched.loss)
    assert plain.metrics["kl"] == plain.metrics["entropy"] == 0
    assert watched.metrics["kl"] > 0 and watched.metrics["entropy"] > 0


def test_without_advantage_no_token_is_active() -> None:
    data = batch(1, mask=False)
    zero = torch.zeros_like(data.advantages)
    assert call(data, PolicyLoss(), advantages=zero).metrics["active_tokens"] == 0
    assert call(data, PolicyLoss(beta=0.1), advantages=zero).metrics["active_tokens"] == TOKENS


def test_strided_and_expanded_inputs() -> None:
    data = batch(2, per_token=True)
    wide = {
        name: torch.stack([value, value + 1], dim=1)[:, 0]
        for name, value in zip(Batch.__dataclass_fields__, data.tensors(), strict=True)
        if value.is_floating_point()
    }
    assert not wide["logps"].is_contiguous()
    assert torch.equal(call(data, **wide).loss, call(data).loss)
    one = torch.full((), 0.25, dtype=torch.float64, device=DEVICE)
    spread = call(data, scale=one.expand(SEQUENCES), advantages=one.expand(SEQUENCES))
    full = call(data, scale=one.repeat(SEQUENCES), advantages=one.repeat(SEQUENCES))
    assert torch.equal(spread.loss, full.loss)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_fp32(dtype: torch.dtype) -> None:
    data = batch(2).to(dtype)
    logps = data.logps.clone().requires_grad_()
    out = call(data, logps=logps)
    want = call(data.to(torch.float32))
    assert out.loss.dtype == torch.float32
    assert torch.equal(out.loss.detach(), want.loss)
    out.loss.backward()
    assert logps.grad.dtype == dtype and logps.grad.any()


def test_as_many_sequences_as_tokens_leave_nothing_to_guess() -> None:
    advantages = torch.tensor([1.0, 5.0, 2.0], dtype=torch.float64, device=DEVICE)
    spec = PolicyLoss(surrogate="reinforce")
    rest = {"token_weight": None, "sampler": None}
    for lengths, of_tokens in (((2, 0, 1), [0, 0, 2]), ((1, 1, 1), [0, 1, 2])):
        data = batch(3, lengths=lengths, mask=False, on_policy=False)
        for scale in (torch.ones_like(advantages), torch.ones(1, 3).to(advantages)):
            each = call(data, spec, advantages=advantages[:, None], scale=scale, **rest)
            own = call(data, spec, advantages=advantages[None], scale=scale, **rest)
            torch.testing.assert_close(each.loss, -(advantages[of_tokens] * data.logps).sum())
            torch.testing.assert_close(own.loss, -(advantages * data.logps).sum())
        scaled = call(data, spec, advantages=0 * advantages[:, None] + 1, scale=advantages, **rest)
        assert torch.equal(scaled.loss, each.loss)
    # One token each: both are the same.
    rest["scale"] = torch.ones_like(advantages)
    assert torch.equal(call(data, spec, advantages=advantages, **rest).loss, own.loss)


def test_ambiguous_advantages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRGKERN_CHECK", "1")
    for dtype in (torch.float32, torch.float64):
        data = batch(3, lengths=(2, 0, 1), dtype=dtype)
        for given in (data.logps[:3].detach(), data.logps[:3].detach().contiguous()):
            with pytest.raises(ValueError, match=r"3 sequences and 3 tokens: pass .*\[:, None\]"):
                call(data, advantages=given)


@pytest.mark.parametrize("aggregation", ["grpo", "bnpo", "dr_grpo", "sum"])
def test_micro_batches_add_up_to_the_batch(aggregation: str) -> None:
    data = batch(4, per_token=False)
    limit = {"max_length": 9} if aggregation == "dr_grpo" else {}
    scale = loss_scale(aggregation, data.offsets, mask=data.mask, **limit).double()
    spec = PolicyLoss(ratio_level="sequence", beta=0.1)
    whole = call(data, spec, scale=scale)
    total = torch.zeros((), dtype=torch.float64, device=DEVICE)
    for first, last in ((0, 3), (3, 4), (4, 6)):
        start, end = int(data.offsets[first]), int(data.offsets[last])
        part = {
            name: value[start:end] if value.numel() == TOKENS else value[first:last]
            for name, value in zip(Batch.__dataclass_fields__, data.tensors(), strict=True)
            if name not in ("offsets", "scale")
        }
        part["offsets"] = data.offsets[first : last + 1] - start
        total += call(data, spec, **part, scale=scale[first:last]).loss
    torch.testing.assert_close(total, whole.loss, rtol=1e-12, atol=1e-15)


long = torch.zeros(TOKENS + 1)
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"logps": torch.zeros(2, 3)}, ValueError, r"logps has shape \(2, 3\); wanted \[N\]"),
    ({"logps": torch.zeros(TOKENS).long()}, TypeError, "logps is torch.int64"),
    ({"old": long}, ValueError, rf"old has shape \({TOKENS + 1},\) and logps \({TOKENS},\)"),
    ({"ref": torch.zeros(TOKENS, 1)}, ValueError, r"ref has shape .* wanted \[N\]"),
    ({"advantages": torch.zeros(4)}, ValueError, r"advantages has shape \(4,\) .*\[S\] or \[N\]"),
    ({"scale": torch.zeros(())}, ValueError, r"scale has shape \(\) .*\[S\] or \[N\]"),
    ({"old": torch.zeros(TOKENS).int()}, TypeError, "old is torch.int32; .* old.float"),
    ({"mask": torch.ones(TOKENS)}, TypeError, "mask is torch.float32; wanted torch.bool"),
    ({"mask": torch.ones(3).bool()}, ValueError, "mask has shape"),
    ({"on_policy": torch.ones(TOKENS).bool()}, ValueError, "on_policy has shape .* per sequence"),
    ({"offsets": torch.tensor([0, TOKENS]).int()}, TypeError, "offsets is torch.int32"),
    ({"offsets": torch.tensor([0])}, ValueError, "no sequence"),
    ({"offsets": torch.tensor([0, 5, 5, 11, 12, 19, 19])}, ValueError, "from 0 to 19; .* 20"),
    ({"offsets": torch.tensor([0, 5, 4, 11, 12, 20, 20])}, ValueError, "down after position 1"),
    ({"logps": None}, TypeError, "logps is None; wanted a torch.Tensor"),
    ({"ref": None}, ValueError, "beta is 0.1 and ref is None"),
    ({"entropy": None}, ValueError, "entropy_coef is 0.05 and entropy is None"),
    ({"ref": torch.zeros(TOKENS, device="meta")}, ValueError, "ref is on meta and logps on cpu"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_one_clear_line(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        call(batch(0, dtype=torch.float32, device="cpu"), **change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.23, 0.56, 1.0])
def test_tokens_of_most_entropy_weigh_one(share: float) -> None:
    data = batch(2)
    entropy = torch.where(data.keep, data.entropy, torch.nan)  # nothing is read beside the mask
    bound = np.quantile(entropy[data.keep].tolist(), 1 - share)
    weight = top_entropy_weight(entropy, share, data.mask)
    assert torch.equal(weight, (entropy >= bound).double()) and weight.sum() > 0
    assert top_entropy_weight(torch.arange(11.0), 0.7).sum() == 8
    with pytest.raises(ValueError, match="share is 0; wanted a number above 0 and at most 1"):
        top_entropy_weight(entropy, 0)


@pytest.mark.parametrize("per_token", [False, True])
def test_a_sequence_that_the_policy_has_left_weighs_nothing(per_token: bool) -> None:
    data = batch(4, per_token=per_token)
    weight = off_policy_weight(
        data.logps, data.sampler, data.advantages, data.offsets, threshold=0.1, mask=data.mask
    )
    by_hand = []
    for s, (start, end) in enumerate(itertools.pairwise(data.offsets.tolist())):
        tokens = [t for t in range(start, end) if data.keep[t]]
        gaps = [float(data.sampler[t] - data.logps[t]) for t in tokens]
        near = sum(gap for gap in gaps if gap == gap) <= 0.1 * len(tokens)
        earns = data.advantages[start:end] if per_token else data.advantages[s].expand(end - start)
        by_hand += [near or earns[t - start] >= 0 or t not in tokens for t in range(start, end)]
    assert weight.dtype == data.logps.dtype and weight.tolist() == [float(b) for b in by_hand]
    assert 0 in weight and 1 in weight
