"""Measure the policy loss from hidden states and its gradients, by mode.

Two batches: a dense one, and that of the domain, where 60 % of the positions are prompt or padding
and 35 % of the groups have no variance, so no advantage. Log-probabilities of the policy that
sampled are given in both. Eager leaves masked rows out too, and multiplies all others.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import PolicyLoss, linear_policy_loss, loss_scale

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
MASKED, ZERO_VARIANCE = 0.6, 0.35
# (groups, members, length, width, vocabulary, dtype): Qwen2.5-VL-3B's head; on a CPU, the
# trainer's demo model and a narrower head of the same vocabulary.
SHAPES = (
    [(64, 8, 16, 2048, 151936, torch.bfloat16), (64, 8, 64, 2048, 151936, torch.bfloat16)]
    if CUDA
    else [(16, 8, 20, 128, 600, torch.float32), (6, 3, 9, 128, 151936, torch.float32)]
)
SPEC = PolicyLoss()

trainable = Bench("linear_policy_loss")
frozen = Bench("linear_policy_loss")

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]


def eager(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, ...]:
    """Head, log-softmax and PPO's clip as one writes them, under autograd."""
    sequences = torch.arange(len(offsets) - 1, device=hidden.device)
    sequence = sequences.repeat_interleave(offsets.diff(), output_size=len(hidden))
    rows = hidden
    if mask is not None:
        rows, targets, old, sequence = hidden[mask], targets[mask], old[mask], sequence[mask]
    log_p = torch.log_softmax((rows @ weight.T).float(), -1)
    logps = log_p.gather(-1, targets[:, None])[:, 0]
    ratio = (logps - old).clamp(-20, 20).exp()
    advantage = advantages[sequence]
    surrogate = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    loss = (scale[sequence] * surrogate).sum()
    return torch.autograd.grad(loss, [x for x in (hidden, weight) if x.requires_grad])


def ours(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor,
    mask: Tensor | None,
    *,
    mode: str,
    metrics: str = "scored",
) -> tuple[Tensor, ...]:
    loss, _ = linear_policy_loss(
        *(hidden, weight, targets, advantages, offsets),
        scale=scale,
        old=old,
        mask=mask,
        spec=SPEC,
        mode=mode,
        metrics=metrics,
    )
    return torch.autograd.grad(loss, [x for x in (hidden, weight) if x.requires_grad])


def into_grad(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, ...]:
    loss, _ = linear_policy_loss(
        *(hidden, weight, targets, advantages, offsets),
        scale=scale,
        old=old,
        mask=mask,
        spec=SPEC,
        accumulate_weight_grad=True,
    )
    return torch.autograd.grad(loss, [hidden])


for table in (trainable, frozen):
    table.provider("eager")(eager)
    table.provider("recompute")(functools.partial(ours, mode="recompute"))
trainable.provider("grad_in_forward")(functools.partial(ours, mode="grad_in_forward"))
trainable.provider("grad_in_forward, metrics computed")(
    functools.partial(ours, mode="grad_in_forward", metrics="computed")
)
trainable.provider("recompute into .grad")(into_grad)
frozen.provider("frozen_head")(functools.partial(ours, mode="frozen_head"))
frozen.provider("frozen_head, metrics computed")(
    functools.partial(ours, mode="frozen_head", metrics="computed")
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", ["dense", "domain"])
@pytest.mark.parametrize("head", ["trainable", "frozen"])
def test_forward_and_backward(benchmark, head, batch, shape):
    groups, members, length, width, vocabulary, dtype = shape
    positions = groups * members * length
    domain = batch == "domain"
    flat = round(groups * ZERO_VARIANCE) if domain else 0

    def make_inputs(seed: int) -> Inputs:
        generator = torch.Generator(DEVICE).manual_seed(seed)
        options = {"device": DEVICE, "generator": generator}
        offsets = torch.arange(0, positions + 1, length, device=DEVICE)
        mask = None
        if domain:
            # The prompt comes first.
            place = torch.arange(positions, device=DEVICE) % length
            mask = place >= round(MASKED * length)
        hidden = torch.randn(positions, width, **options).to(dtype).requires_grad_()
        weight = (torch.randn(vocabulary, width, **options) / width**0.5).to(dtype)
        targets = torch.randint(vocabulary, (positions,), **options)
        advantages = torch.randn(groups, members, **options)
        advantages[:flat] = 0
        with torch.no_grad():
            chosen = (hidden.float() * weight[targets].float()).sum(1)
            # Near the policy's own: the logits have variance 1.
            old = chosen - 0.5 - torch.log(torch.tensor(float(vocabulary)))
            old += 0.05 * torch.randn(positions, **options)
        return (
            *(hidden, weight.requires_grad_(head == "trainable"), targets),
            *(advantages.flatten(), offsets, loss_scale("grpo", offsets, mask=mask), old, mask),
        )

    scored = groups * members * (length - round(MASKED * length)) if domain else positions
    live = round(scored * (1 - flat / groups))
    product = 2 * width * vocabulary
    table = trainable if head == "trainable" else frozen
    table.compare(
        benchmark,
        make_inputs,
        shape={"positions": positions, "scored": scored, "live": live}
        | {"width": width, "vocabulary": vocabulary},
        dtype=dtype,
        case=f"{head} head, {batch}, forward+backward",
        # Nothing multiplies less: every live row once forward, once for each gradient.
        flops=live * product * (3 if head == "trainable" else 2),
        rounds=20 if CUDA or vocabulary < 10_000 else 5,
    )
