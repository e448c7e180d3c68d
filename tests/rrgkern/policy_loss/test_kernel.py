"""Whatever serves the op (here the Triton passes) against the reference in fp64 and fp32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss
from rrgkern.policy_loss.op import policy_loss_fwd
from rrgkern.policy_loss.reference import policy_loss_reference
from tests.products import first_of, more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss import cases

Served = tuple[Tensor, ...]
# 11 and 13 share no factor with the counts of the choices, so every choice keeps coming up.
CASES = cases.sampled_variants(stride=11)
FP32_CASES = cases.sampled_variants(stride=13)
SPREAD = PolicyLoss(beta=0.1, entropy_coef=0.01, kl_ratio_weight=True, dual_clip=1.5)


@pytest.mark.parametrize(
    ("spec", "data"), first_of(CASES, 12), ids=[cases.name_of(spec) for spec, _ in CASES]
)
def test_fp64_equals_the_reference(spec: PolicyLoss, data: cases.Batch) -> None:
    served = policy_loss_fwd(*data.arguments(spec))
    expected = policy_loss_reference(*data.arguments(spec))
    for got, want in zip(served, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("spec", "data"), first_of(FP32_CASES, 10), ids=[cases.name_of(spec) for spec, _ in FP32_CASES]
)
def test_fp32_is_as_close_to_the_truth_as_eager(spec: PolicyLoss, data: cases.Batch) -> None:
    cases.check_fp32(spec, data, policy_loss_fwd(*data.to(torch.float32).arguments(spec)))


@pytest.mark.parametrize("serve", [policy_loss_fwd])
def test_fp32_over_several_blocks(serve: Callable[..., Served]) -> None:
    lengths = (300, 0, 1, 511, 40, 700, 3)
    gmpo = {"surrogate": "gmpo", "ratio_level": "sequence", "sampler_level": "geometric"}
    for seed, level in enumerate(("token", "sequence", "sequence_token", "gmpo")):
        options = gmpo if level == "gmpo" else {"ratio_level": level, "sampler_level": "sequence"}
        spec = PolicyLoss(beta=0.1, **options)
        data = cases.batch(seed, lengths=lengths)
        cases.check_fp32(spec, data, serve(*data.to(torch.float32).arguments(spec)))


@pytest.mark.parametrize("surrogate", ["clip", "vespo"])
@pytest.mark.parametrize("serve", [policy_loss_fwd, policy_loss_reference])
@pytest.mark.parametrize("poison", [torch.nan, *more(torch.inf, -torch.inf, 1e30)])
def test_nothing_at_a_masked_position_changes_a_bit(serve, poison: float, surrogate: str) -> None:
    spec = PolicyLoss(surrogate=surrogate, beta=0.1, entropy_coef=0.1, kl_ratio_weight=True)
    data = cases.batch(2, dtype=torch.float32, per_token=True)
    fields = ["logps", "advantages", "scale", "old", "ref", "sampler", "token_weight", "entropy"]
    poisoned = data.changed(
        **{name: torch.where(data.mask, getattr(data, name), poison) for name in fields}
    )
    for clean, dirty in zip(
        serve(*data.arguments(spec)), serve(*poisoned.arguments(spec)), strict=True
    ):
        assert torch.equal(clean, dirty)
        assert clean.isfinite().all()
    assert serve(*poisoned.arguments(spec))[1][~data.mask].eq(0).all()


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0), (1,), (4, 0, 0), (257,)])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("serve", [policy_loss_fwd])
def test_odd_lengths(lengths: tuple[int, ...], level: str, serve: Callable[..., Served]) -> None:
    spec = PolicyLoss(ratio_level=level, beta=0.1, entropy_coef=0.1)
    data = cases.batch(4, lengths=lengths)
    for got, want in zip(
        serve(*data.arguments(spec)), policy_loss_reference(*data.arguments(spec)), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("serve", [policy_loss_fwd, policy_loss_reference])
def test_all_masked(serve) -> None:
    data = cases.batch(4).changed(
        mask=torch.zeros(sum(cases.LENGTHS), dtype=torch.bool, device=DEVICE)
    )
    loss, coef, coef_entropy, metrics = serve(*data.arguments(SPREAD))
    assert loss == 0 and coef.eq(0).all() and coef_entropy.eq(0).all() and metrics.eq(0).all()


@pytest.mark.parametrize(
    "spec",
    [PolicyLoss(ratio_level="sequence"), *more(SPREAD, PolicyLoss(surrogate="vespo", beta=0.1))],
)
@pytest.mark.parametrize("given", [True, *more(False)])
def test_opcheck(spec: PolicyLoss, given: bool) -> None:
    data = cases.batch(1, dtype=torch.float32)
    if not given:
        data = cases.Batch(data.logps, data.advantages, data.offsets, data.scale, ref=data.ref)
        spec = PolicyLoss(surrogate=spec.surrogate, ratio_level=spec.ratio_level, beta=spec.beta)
    arguments = list(data.arguments(spec))
    arguments[0] = arguments[0].clone().requires_grad_()
    if given:
        arguments[1] = arguments[1].clone().requires_grad_()
    torch.library.opcheck(policy_loss_fwd, tuple(arguments))
