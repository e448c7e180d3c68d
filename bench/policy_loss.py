"""Loss, gradient and metrics of the policy: a dense batch, and the batch of the domain.

The batch of the domain: 60 % of the positions are prompt or padding, and a third of the groups has
no variance, so no advantage. Log-probabilities of the policy that sampled and of the reference are
given in both, and both providers return the gradient and the metrics.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import PolicyLoss, loss_scale, policy_loss

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
MEMBERS, LENGTH = 10, 150
GROUPS = 32 if CUDA else 4
MASKED = 0.6
SPECS = {
    "PPO": PolicyLoss(beta=0.04),
    "GSPO": PolicyLoss(ratio_level="sequence", eps_low=3e-4, eps_high=4e-4, beta=0.04),
}

bench = Bench("policy_loss")

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, PolicyLoss]


@bench.provider("eager")
def eager(
    logps: Tensor,
    old: Tensor,
    ref: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    spec: PolicyLoss,
) -> tuple[Tensor, ...]:
    """The clip with a k3 term as one writes it, under autograd, and the same metrics."""
    sequences = len(offsets) - 1
    sequence = torch.arange(sequences, device=logps.device).repeat_interleave(
        offsets.diff(), output_size=len(logps)
    )
    keep = torch.ones_like(logps) if mask is None else mask.to(logps.dtype)
    advantage, token_scale = advantages[sequence], scale[sequence] * keep
    difference = logps - old
    if spec.ratio_level == "sequence":
        sums = torch.stack([difference * keep, keep], dim=1)
        totals = torch.zeros(sequences, 2, device=logps.device).index_add(0, sequence, sums)
        difference = (totals[:, 0] / totals[:, 1].clamp(min=1))[sequence]
    ratio = difference.clamp(-20, 20).exp()
    low, high = 1 - spec.eps_low, 1 + spec.eps_high
    surrogate = -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    x = ref - logps
    kl = x.exp() - x - 1
    loss = (token_scale * (surrogate + spec.beta * kl)).sum()
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
    offsets: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    spec: PolicyLoss,
) -> tuple[Tensor, ...]:
    loss, metrics = policy_loss(
        logps, advantages, offsets, scale=scale, old=old, ref=ref, mask=mask, spec=spec
    )
    return torch.autograd.grad(loss, logps)[0], *metrics.values()


@pytest.mark.parametrize("variant", SPECS)
@pytest.mark.parametrize("batch", ["dense", "domain"])
def test_forward_and_backward(benchmark, batch, variant):
    sequences = GROUPS * MEMBERS
    tokens = sequences * LENGTH
    masked = batch == "domain"

    def make_inputs(seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        # Sequences of 50 to 250 tokens whose sum is the same for every seed.
        lengths = 50 + torch.multinomial(
            torch.ones(sequences), tokens - 50 * sequences, replacement=True, generator=generator
        ).bincount(minlength=sequences)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        logps = -torch.rand(tokens, generator=generator)
        old = logps + 0.1 * torch.randn(tokens, generator=generator)
        ref = logps + 0.1 * torch.randn(tokens, generator=generator)
        advantages = torch.randn(GROUPS, MEMBERS, generator=generator)
        mask = None
        if masked:
            advantages[: GROUPS // 3] = 0
            # The prompt comes first.
            place = torch.arange(tokens) - offsets[:-1].repeat_interleave(lengths)
            mask = place >= (MASKED * lengths).repeat_interleave(lengths)
        return (
            logps.to(DEVICE).requires_grad_(),
            old.to(DEVICE),
            ref.to(DEVICE),
            advantages.flatten().to(DEVICE),
            offsets.to(DEVICE),
            loss_scale("grpo", offsets, mask=mask).to(DEVICE),
            None if mask is None else mask.to(DEVICE),
            SPECS[variant],
        )

    bench.compare(
        benchmark,
        make_inputs,
        shape={
            "groups": GROUPS,
            "members": MEMBERS,
            "tokens": tokens,
            "masked": MASKED if masked else 0.0,
            "flat_groups": GROUPS // 3 if masked else 0,
        },
        dtype=torch.float32,
        case=f"{variant}, {batch}, forward+backward",
        # logps, old and ref read, the mask too where there is one; the coefficient written, then
        # read and written again scaled.
        bytes_moved=tokens * (6 * 4 + masked),
    )
