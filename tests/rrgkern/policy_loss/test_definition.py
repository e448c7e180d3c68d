"""The reference against the plain loop: values, metrics, and gradients by finite differences."""

from __future__ import annotations

import pytest
import torch

from rrgkern.policy_loss.reference import METRICS, policy_loss_reference, slopes
from rrgkern.policy_loss.spec import PolicyLoss
from tests.products import first_of, more
from tests.rrgkern.policy_loss.cases import Batch, batch, name_of, sampled_variants, variants
from tests.rrgkern.policy_loss.plain_loop import loop_loss

# The reference alone: no kernel to reach on a GPU.
CASES = sampled_variants(stride=3, device="cpu")
# 7 shares no factor with the counts of the choices, so every choice keeps coming up.
FEWER_CASES = sampled_variants(stride=7, device="cpu")


@pytest.mark.parametrize(
    ("spec", "data"), first_of(CASES, 50), ids=[name_of(spec) for spec, _ in CASES]
)
def test_loss_and_metrics_equal_the_plain_loop(spec: PolicyLoss, data: Batch) -> None:
    loss, coef, _, metrics = policy_loss_reference(*data.arguments(spec))
    expected, by_name = loop_loss(spec, data)
    torch.testing.assert_close(float(loss), expected, rtol=1e-12, atol=1e-14)
    got = dict(zip(METRICS, metrics.tolist(), strict=True))
    assert got.pop("active_tokens") == int((coef != 0).sum())
    assert got == pytest.approx(by_name, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    ("spec", "data"), first_of(FEWER_CASES, 20), ids=[name_of(spec) for spec, _ in FEWER_CASES]
)
def test_coef_is_the_slope_of_the_plain_loop(spec: PolicyLoss, data: Batch) -> None:
    _, coef, coef_entropy, _ = policy_loss_reference(*data.arguments(spec))
    logps = data.logps.tolist()
    step = 1e-6
    for t in range(len(logps)):
        ends = []
        for move in (step, -step):
            moved = list(logps)
            moved[t] += move
            ends.append(loop_loss(spec, data, moved)[0])
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(coef[t]) == pytest.approx(slope, rel=1e-6, abs=1e-8)
    scale = data.scale
    if scale.numel() != len(logps):
        scale = scale.repeat_interleave(data.offsets.diff())
    expected = torch.where(data.keep, -spec.entropy_coef * scale, 0.0)
    torch.testing.assert_close(coef_entropy, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("old", [True, *more(False)])
@pytest.mark.parametrize("per_token", [True, *more(False)])
def test_slopes_equal_autograd_of_the_terms(per_token: bool, old: bool) -> None:
    checked = 0
    for seed, spec in enumerate(variants()):
        data = batch(seed, per_token=per_token, old=old, device="cpu")
        logps = data.logps.clone().requires_grad_()
        entropy = data.entropy.clone().requires_grad_()
        moving = data.changed(logps=logps, entropy=entropy)
        t = moving.terms(spec)
        by_autograd = torch.autograd.grad((t.scale * t.loss).sum(), (logps, entropy))
        _, coef, coef_entropy, _ = policy_loss_reference(*data.arguments(spec))
        torch.testing.assert_close(coef, by_autograd[0], rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(coef_entropy, by_autograd[1], rtol=1e-10, atol=1e-14)
        with torch.no_grad():
            assert torch.equal(slopes(t, spec), coef)
        checked += 1
    assert checked == 4 * 3 * 3 * 2 * 4 + 3 * 2 * 4 + 3 * 2 * 2


@pytest.mark.parametrize("surrogate", ["clip", "sapo", "reinforce"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_gradcheck_where_nothing_is_detached(surrogate: str, level: str) -> None:
    spec = PolicyLoss(
        surrogate=surrogate, ratio_level=level, beta=0.2, kl_ratio_weight=True, entropy_coef=0.1
    )
    data = batch(3, sampler=False, on_policy=False, device="cpu")  # no copy of logps anywhere

    def loss(logps: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        moving = data.changed(logps=logps, entropy=entropy)
        t = moving.terms(spec)
        return (t.scale * t.loss).sum()

    inputs = (data.logps.clone().requires_grad_(), data.entropy.clone().requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)
