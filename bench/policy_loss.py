"""Measure the policy loss, its gradient and its metrics: a dense batch, and the domain's.

Log-probabilities of the policy that sampled and of the reference are given. The baseline and this
library return the gradient and the metrics, a peer what its own trainer computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.batch import DRY, Sizes, draw_layout
from bench.harness import Agree, Bench
from bench.peers import Peer
from rrgkern import PolicyLoss, loss_scale, policy_loss

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if DRY:
    SIZES = Sizes(groups=3, members=2, length=8, width=0, vocabulary=97)
else:
    SIZES = Sizes(groups=32 if CUDA else 4, members=10, length=150, width=0, vocabulary=97)
SPECS = {
    "PPO": PolicyLoss(beta=0.04),
    "GSPO": PolicyLoss(ratio_level="sequence", eps_low=3e-4, eps_high=4e-4, beta=0.04),
}

bench = Bench("policy_loss")

# logps, old, ref [S, T]; advantages [S]; mask [S, T]; offsets [S+1]; scale [S]; masked; variant
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, bool, PolicyLoss]


@bench.provider("eager")
def eager(
    logps: Tensor,
    old: Tensor,
    ref: Tensor,
    advantages: Tensor,
    mask: Tensor,
    offsets: Tensor,
    scale: Tensor,
    masked: bool,
    spec: PolicyLoss,
) -> tuple[Tensor, ...]:
    """Compute the clip with a k3 term under autograd, and the same metrics."""
    keep = mask.to(logps.dtype)
    advantage, lengths = advantages[:, None], keep.sum(1, keepdim=True).clamp(min=1)
    difference = (logps - old).clamp(-20, 20)
    if spec.ratio_level == "sequence":
        difference = ((difference * keep).sum(1, keepdim=True) / lengths).expand_as(logps)
    ratio = difference.exp()
    low, high = 1 - spec.eps_low, 1 + spec.eps_high
    surrogate = -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    x = ref - logps
    kl = x.exp() - x - 1
    loss = ((surrogate + spec.beta * kl) * keep / lengths).sum() / len(logps)
    (gradient,) = torch.autograd.grad(loss, logps)
    with torch.no_grad():
        tokens, ratio = keep.sum().clamp(min=1), ratio * keep
        below, above = (advantage < 0) & (ratio < low), (advantage > 0) & (ratio > high)
        return (
            gradient,
            (kl * keep).sum() / tokens,
            (below * keep).sum() / tokens,
            (above * keep).sum() / tokens,
            ratio.sum() / tokens,
            ratio.amax(),
            ratio.sum().square() / (tokens * ratio.square().sum()),
            (gradient != 0).sum(),
        )


_compiled = torch.compile(eager)


@bench.provider("compiled", device="cuda")
def compiled(*inputs: Any) -> tuple[Tensor, ...]:
    return _compiled(*inputs)


@bench.provider("rrgkern")
def ours(
    logps: Tensor,
    old: Tensor,
    ref: Tensor,
    advantages: Tensor,
    mask: Tensor,
    offsets: Tensor,
    scale: Tensor,
    masked: bool,
    spec: PolicyLoss,
) -> tuple[Tensor, ...]:
    loss, metrics = policy_loss(
        logps.flatten(),
        advantages,
        offsets,
        scale=scale,
        old=old.flatten(),
        ref=ref.flatten(),
        mask=mask.flatten() if masked else None,
        spec=spec,
    )
    return torch.autograd.grad(loss, logps)[0], *metrics.values()


def of_peer(peer: Peer) -> Callable[..., Tensor]:
    def run(
        logps: Tensor,
        old: Tensor,
        ref: Tensor,
        advantages: Tensor,
        mask: Tensor,
        offsets: Tensor,
        scale: Tensor,
        masked: bool,
        spec: PolicyLoss,
    ) -> Tensor:
        loss = peer(
            logps,
            old,
            ref,
            advantages,
            mask,
            level=spec.ratio_level,
            eps_low=spec.eps_low,
            eps_high=spec.eps_high,
            beta=spec.beta,
        )
        return torch.autograd.grad(loss, logps)[0]

    return run


bench.peers("logps", of_peer)


@pytest.mark.parametrize("variant", SPECS)
@pytest.mark.parametrize("kind", ["dense", "domain"])
def test_forward_and_backward(benchmark, kind, variant):
    masked = SIZES.scored(kind) < SIZES.positions

    def make_inputs(seed: int) -> Inputs:
        batch = draw_layout(SIZES, kind, seed)
        generator = torch.Generator().manual_seed(seed)
        logps = -torch.rand(batch.mask.shape, generator=generator)
        ref = logps + 0.1 * torch.randn(batch.mask.shape, generator=generator)
        offsets = torch.arange(0, SIZES.positions + 1, SIZES.length)
        return (
            logps.clone().to(DEVICE).requires_grad_(),
            (logps + batch.old).to(DEVICE),
            ref.to(DEVICE),
            batch.advantages.to(DEVICE),
            batch.mask.to(DEVICE),
            offsets.to(DEVICE),
            loss_scale("grpo", offsets, mask=batch.mask.flatten()).to(DEVICE),
            masked,
            SPECS[variant],
        )

    bench.compare(
        benchmark,
        make_inputs,
        shape={"sequences": SIZES.sequences, "positions": SIZES.positions}
        | {"scored": SIZES.scored(kind), "active": SIZES.active(kind)},
        dtype=torch.float32,
        case=f"{variant}, {kind}, forward+backward",
        # logps, old and ref read, the mask too where there is one; the coefficient written, then
        # read and written again scaled.
        bytes_moved=SIZES.positions * (6 * 4 + masked),
        agree=Agree(1, 1e-4),
    )
