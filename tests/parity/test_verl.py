"""Loss, gradient and metrics of verl 0.9.1's policy losses and KL estimators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss
from tests.parity.padded import Padded, Result, assert_same, ours, padded, peer

core = peer("verl.trainer.ppo.core_algos")
ActorConfig = peer("verl.workers.config").ActorConfig

# verl divides by a count + 1e-8.
EPSILON = {"rtol": 3e-8, "atol": 1e-10}

# verl's name of a loss: what it is here. "vanilla" always has a dual clip.
SPECS = {
    "vanilla": {"surrogate": "clip", "dual_clip": 1.4},
    "gspo": {"surrogate": "clip", "ratio_level": "sequence_token"},
    "sapo": {"surrogate": "sapo", "sapo_tau_pos": 1.5, "sapo_tau_neg": 0.6},
    "gpg": {"surrogate": "reinforce"},
    "cispo": {"surrogate": "cispo"},
    "geo_mean": {"surrogate": "gmpo", "ratio_level": "sequence"},
}
AGGREGATIONS = {
    "token-mean": "bnpo",
    "seq-mean-token-mean": "grpo",
    "seq-mean-token-sum": "sum",
    "seq-mean-token-sum-norm": "dr_grpo",
}
CASES = [
    (loss, aggregation, weighted)
    for loss in SPECS
    for aggregation in AGGREGATIONS
    for weighted in (False, True)
    # verl's SAPO has one aggregation, and its GMPO this one; it weighs a sequence by one number.
    if loss not in ("sapo", "geo_mean") or aggregation == "seq-mean-token-mean"
    if loss != "geo_mean" or not weighted
]


def verl(data: Padded, loss: str, aggregation: str, weighted: bool) -> Result:
    logps = data.logps.clone().requires_grad_()
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.1,
        clip_ratio_high=0.15,
        clip_ratio_c=1.4,
        tau_pos=1.5,
        tau_neg=0.6,
    )
    value, metrics = core.get_policy_loss_fn(loss)(
        old_log_prob=data.old,
        log_prob=logps,
        advantages=data.advantages[:, None].expand_as(logps),
        response_mask=data.mask.to(logps.dtype),
        loss_agg_mode=aggregation,
        config=config,
        rollout_is_weights=weights(data) if weighted else None,
    )
    (gradient,) = torch.autograd.grad(value, logps)
    return Result(value.detach(), gradient, metrics)


def weights(data: Padded) -> Tensor:
    """Truncated rollout correction, 1 where the engine has no value."""
    return (data.old - data.sampler).nan_to_num(nan=0.0).exp().clamp(0.7, 1.3)


def by_us(data: Padded, loss: str, aggregation: str, weighted: bool, **options: Any) -> Result:
    spec = PolicyLoss(
        eps_low=0.1, eps_high=0.15, sampler_min=0.7, sampler_max=1.3, **SPECS[loss], **options
    )
    return ours(data, spec, AGGREGATIONS[aggregation], packed=False, sampler=weighted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_loss_and_gradient(case: tuple[str, str, bool]) -> None:
    # verl leaves a sequence without tokens out of the mean over sequences.
    data = padded(CASES.index(case), empty=False)
    theirs = verl(data, *case)
    assert theirs.gradient.any()
    assert_same(by_us(data, *case), theirs, **EPSILON)


def test_a_sequence_without_tokens_counts_here() -> None:
    data = padded(3)
    case = ("vanilla", "seq-mean-token-mean", False)
    sequences, empty = len(data.mask), int((~data.mask.any(1)).sum())
    assert empty == 1
    mine, theirs = by_us(data, *case), verl(data, *case)
    share = (sequences - empty) / sequences
    scaled = Result(theirs.loss * share, theirs.gradient * share, {})
    assert_same(mine, scaled, **EPSILON)


def test_clip_fractions() -> None:
    data = padded(4, empty=False)
    mine, theirs = (
        by_us(data, "vanilla", "token-mean", False),
        verl(data, "vanilla", "token-mean", False),
    )
    clipped = mine.metrics["clip_low"] + mine.metrics["clip_high"]
    # The dual clip, counted apart there, is part of clip_high here.
    total = theirs.metrics["actor/pg_clipfrac"] + theirs.metrics["actor/pg_clipfrac_lower"]
    assert clipped == pytest.approx(total, rel=1e-6)
    assert clipped > 0


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_estimators(estimator: str) -> None:
    data = padded(5, empty=False)
    logps = data.logps.clone().requires_grad_()
    kl = core.kl_penalty(logps, data.ref, estimator)
    loss = core.agg_loss(kl, data.mask.double(), "token-mean")
    (gradient,) = torch.autograd.grad(loss, logps)
    # Nothing but the KL: no advantage.
    silent = data.changed(advantages=torch.zeros_like(data.advantages))
    mine = ours(silent, PolicyLoss(kl=estimator, beta=1.0), "bnpo", packed=True)
    theirs = Result(loss.detach(), gradient, {})
    assert_same(mine, theirs, **EPSILON)
    assert mine.metrics["kl"] == pytest.approx(float(theirs.loss), rel=1e-6)


def test_verl_flattens_a_large_k3() -> None:
    """Lose a token: verl's k3 is 10 there and its gradient 0; here it still pulls."""
    data = padded(6, empty=False)
    logps = data.logps.clone()
    logps[0, 0] = data.ref[0, 0] - 5.0
    data = data.changed(logps=logps, advantages=torch.zeros_like(data.advantages))
    moving = logps.clone().requires_grad_()
    kl = core.kl_penalty(moving, data.ref, "k3")
    (theirs,) = torch.autograd.grad(core.agg_loss(kl, data.mask.double(), "token-mean"), moving)
    assert theirs[0, 0] == 0
    mine = ours(data, PolicyLoss(kl="k3", beta=1.0), "bnpo", packed=True)
    torch.testing.assert_close(
        float(mine.gradient[0, 0]), -torch.tensor(5.0).double().expm1().item() / data.tokens
    )


@pytest.mark.parametrize("loss", SPECS)
def test_ratios_that_overflow(loss: str) -> None:
    # verl clamps too; both are finite, and agree where the clamp removes the gradient.
    data = padded(7, dtype=torch.float32, empty=False)
    old = data.old.clone()
    old[0, 0] = data.logps[0, 0] - 95.0
    data = data.changed(old=old)
    theirs = verl(data, loss, "seq-mean-token-mean", False)
    mine = by_us(data, loss, "seq-mean-token-mean", False)
    assert theirs.gradient.isfinite().all()
    tolerance = {"rtol": 2e-5, "atol": 1e-6}
    torch.testing.assert_close(mine.gradient, theirs.gradient, **tolerance)


@pytest.mark.parametrize("loss", SPECS)
def test_verl_lets_padding_into_the_gradient(loss: str) -> None:
    data = padded(8, empty=False)
    case = (loss, "seq-mean-token-mean", False)
    theirs = verl(data.masked_fill(torch.nan), *case)
    assert theirs.loss.isnan() or theirs.gradient.isnan().any()
    clean = by_us(data, *case)
    mine = by_us(data.masked_fill(torch.nan), *case)
    assert torch.equal(mine.loss, clean.loss) and torch.equal(mine.gradient, clean.gradient)
