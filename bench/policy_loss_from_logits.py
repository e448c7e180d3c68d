"""Measure PPO's clip from logits in memory: loss, metrics, gradient of the logits.

`against_peers.py` measures the same against other projects.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.batch import DRY, Batch, Sizes, draw_logits
from bench.harness import Agree, Bench
from rrgkern import PolicyLoss, policy_loss, policy_loss_from_logits, token_logps

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = torch.bfloat16
# With the position that predicts nothing: 8192 rows on a GPU, 96 on a CPU.
if DRY:
    SIZES = Sizes(groups=3, members=2, length=4, width=0, vocabulary=97)
elif CUDA:
    SIZES = Sizes(groups=8, members=8, length=127, width=0, vocabulary=151936)
else:
    SIZES = Sizes(groups=3, members=2, length=15, width=0, vocabulary=151936)
SPEC = PolicyLoss()
LOW, HIGH = 1 - 0.2, 1 + 0.2

bench = Bench("policy_loss_from_logits")


def plain(values: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    """As one writes it: the log-probabilities of all rows, the clip, and the same metrics."""
    log_p = torch.log_softmax(values.float(), -1)
    logps = log_p.gather(-1, batch.targets[..., None])[..., 0]
    keep, advantage = batch.mask.to(logps.dtype), batch.advantages[:, None]
    ratio = (logps - batch.old).clamp(-20, 20).exp()
    surrogate = -torch.minimum(ratio * advantage, ratio.clamp(LOW, HIGH) * advantage)
    loss = (batch.scale[:, None] * keep * surrogate).sum()
    tokens, kept = keep.sum(), (ratio * keep).detach()
    below, above = (advantage < 0) & (kept < LOW), (advantage > 0) & (kept > HIGH)
    return (
        loss,
        (below * keep).sum() / tokens,
        (above * keep).sum() / tokens,
        kept.sum() / tokens,
        kept.amax(),
        kept.sum().square() / (tokens * kept.square().sum()),
    )


_compiled = torch.compile(plain, dynamic=False)


@bench.provider("eager")
def eager(values: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    loss, *metrics = plain(values, batch)
    return torch.autograd.grad(loss, values)[0], *metrics


@bench.provider("compiled")
def compiled(values: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    loss, *metrics = _compiled(values, batch)
    return torch.autograd.grad(loss, values)[0], *metrics


def fused(values: Tensor, batch: Batch, *, inplace: bool = False) -> tuple[Tensor, ...]:
    loss, metrics = policy_loss_from_logits(
        values,
        batch.targets,
        batch.advantages,
        scale=batch.scale,
        old=batch.old,
        mask=batch.mask,
        spec=SPEC,
        inplace=inplace,
    )
    return torch.autograd.grad(loss, values)[0], *metrics.values()


def copied(values: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
    """Logits that may be overwritten; not a leaf, as a model's are not."""
    return values.clone(), batch


bench.provider("rrgkern")(fused)


@bench.provider("rrgkern in place", fresh=copied)
def in_place(values: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    return fused(values, batch, inplace=True)


@bench.provider("two rooms")
def two_rooms(values: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    logps = token_logps(values, batch.targets, mask=batch.mask).logps
    loss, metrics = policy_loss(
        logps, batch.advantages, scale=batch.scale, old=batch.old, mask=batch.mask, spec=SPEC
    )
    return torch.autograd.grad(loss, values)[0], *metrics.values()


@bench.provider("packed by hand")
def packed(values: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    """Gather the scored rows of padded logits first, as a loop that packs does."""
    mask = batch.mask
    loss, metrics = policy_loss_from_logits(
        values[mask],
        batch.targets[mask],
        batch.advantages,
        batch.offsets,
        scale=batch.scale,
        old=batch.old[mask],
        spec=SPEC,
    )
    return torch.autograd.grad(loss, values)[0], *metrics.values()


@pytest.mark.parametrize("kind", ["dense", "domain"])
def test_forward_and_backward(benchmark: Any, kind: str) -> None:
    def make_inputs(seed: int) -> tuple[Tensor, Batch]:
        return draw_logits(SIZES, kind, seed, device=DEVICE, dtype=DTYPE)

    rows, scored = SIZES.sequences * (SIZES.length + 1), SIZES.scored(kind)
    bench.compare(
        benchmark,
        make_inputs,
        shape={"rows": rows, "scored": scored, "active": SIZES.active(kind)}
        | {"vocabulary": SIZES.vocabulary},
        dtype=DTYPE,
        case=f"PPO, {kind}, forward+backward",
        # The scored rows read once, the gradient of all of them written.
        bytes_moved=(scored + rows) * SIZES.vocabulary * DTYPE.itemsize,
        rounds=20 if CUDA else 5,
        agree=Agree(1, 0.02),
    )
