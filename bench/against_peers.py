"""Time one step of the policy's head and loss, forward and backward, against every peer.

`test_head` starts from hidden states, `test_logits` from logits that are in memory already. Both
measure PPO's clip with the old log-probabilities given, on a dense batch and on the batch of the
domain, and a provider is timed only if its gradients are those of eager PyTorch. Eager and compiled
drop masked rows of the head themselves. Of this library there are the fused room, each way that it
can be told to go, and the two rooms that it is made of; it reports metrics of the rows that it
computes, where peers report none.

    make bench ROOM=peers   on a CPU: ratios and peak memory, rows in bench/results/cpu-peers.jsonl
    make gpu                on a GPU, with the targets of bench/targets.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.batch import DRY, Batch, Sizes, draw_head, draw_logits
from bench.harness import Agree, Bench
from bench.peers import EPSILON, Peer, clip_loss
from rrgkern import (
    PolicyLoss,
    linear_policy_loss,
    linear_token_logps,
    policy_loss,
    policy_loss_from_logits,
    token_logps,
)

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = torch.bfloat16 if CUDA else torch.float32
# ‖difference‖ / ‖truth‖ of a gradient.
TOLERANCE = 0.05 if CUDA else 1e-3
SPEC = PolicyLoss(eps_low=EPSILON, eps_high=EPSILON)

if DRY:
    HEAD = LOGITS = Sizes(groups=3, members=2, length=8, width=16, vocabulary=97)
elif CUDA:
    # 8192 positions of Qwen2.5-VL-3B, and as many rows of logits.
    HEAD = Sizes(groups=32, members=4, length=64, width=2048, vocabulary=151936)
    LOGITS = Sizes(groups=32, members=4, length=63, width=0, vocabulary=151936)
else:
    HEAD = Sizes(groups=8, members=2, length=8, width=128, vocabulary=151936)
    LOGITS = Sizes(groups=4, members=2, length=8, width=0, vocabulary=151936)

ROUNDS = 20 if CUDA else 5

trainable, frozen = Bench("linear_policy_loss"), Bench("linear_policy_loss")
logits = Bench("policy_loss_from_logits")


def head_gradients(loss: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [x for x in (hidden, weight) if x.requires_grad])


def eager_head(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    log_p = torch.log_softmax((hidden @ weight.T).float(), -1)
    return log_p.gather(-1, targets[..., None])[..., 0]


def exact_head(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Take log-probs by eager PyTorch in fp32.

    In bf16 the logit of a likely target, about 15, may be 0.03 off, and so its ratio 3 %.
    """
    return eager_head(hidden.float(), weight.float(), targets)


compiled_head = torch.compile(eager_head, dynamic=False)


def on_scored_rows(logps_of: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """Log-probabilities of the scored rows alone, then the loss as one writes it."""

    def run(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        rows = logps_of(hidden[batch.mask], weight, batch.targets[batch.mask])
        logps = torch.zeros_like(batch.old).masked_scatter(batch.mask, rows)
        loss = clip_loss(logps, batch.advantages, batch.old, batch.mask)
        return head_gradients(loss, hidden, weight)

    return run


def head_of_rooms(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    rows = linear_token_logps(hidden[batch.mask], weight, batch.targets[batch.mask]).logps
    loss = policy_loss(
        rows,
        batch.advantages,
        batch.offsets,
        scale=batch.scale,
        old=batch.old[batch.mask],
        spec=SPEC,
    ).loss
    return head_gradients(loss, hidden, weight)


def fused_loss(hidden: Tensor, weight: Tensor, batch: Batch, **options: Any) -> Tensor:
    return linear_policy_loss(
        hidden.flatten(0, 1),
        weight,
        batch.targets.flatten(),
        batch.advantages,
        batch.every,
        scale=batch.scale,
        old=batch.old.flatten(),
        mask=batch.mask.flatten(),
        spec=SPEC,
        metrics="computed",
        **options,
    ).loss


def fused_head(mode: str) -> Callable[..., tuple[Tensor, ...]]:
    def run(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        return head_gradients(fused_loss(hidden, weight, batch, mode=mode), hidden, weight)

    return run


def into_grad(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    loss = fused_loss(hidden, weight, batch, accumulate_weight_grad=True)
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert weight.grad is not None
    return gradient, weight.grad


def with_zero_grad(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Batch]:
    """The weight with a `.grad` that was there before, as in a step that accumulates."""
    leaf = weight.detach().requires_grad_()
    leaf.grad = torch.zeros_like(leaf)
    return hidden, leaf, batch


def head_of_peer(peer: Peer) -> Callable[..., tuple[Tensor, ...]]:
    def run(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        loss = peer(hidden, weight, batch.targets, batch.advantages, batch.old, batch.mask)
        return head_gradients(loss, hidden, weight)

    return run


for _bench in (trainable, frozen):
    _bench.provider("eager")(on_scored_rows(eager_head))
    # A peer too: its logits are rounded as eager's.
    _bench.provider("compiled", device="cuda", peer=True)(on_scored_rows(compiled_head))
    _bench.provider("rrgkern")(fused_head("auto"))
    _bench.provider("rrgkern two rooms")(head_of_rooms)
    _bench.peers("head", head_of_peer)
trainable.provider("rrgkern forward")(fused_head("grad_in_forward"))
trainable.provider("rrgkern recompute")(fused_head("recompute"))
trainable.provider("rrgkern into .grad", fresh=with_zero_grad)(into_grad)


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("dense", "trainable"),
        ("sparse", "trainable"),
        ("domain", "trainable"),
        ("dense", "frozen"),
        ("domain", "frozen"),
    ],
)
def test_head(benchmark: Any, kind: str, head: str) -> None:
    sizes, is_frozen = HEAD, head == "frozen"
    scored, active, gradients = sizes.scored(kind), sizes.active(kind), 1 if is_frozen else 2
    product = 2 * sizes.width * sizes.vocabulary

    def make_inputs(seed: int) -> tuple[Tensor, Tensor, Batch]:
        drawn = draw_head(sizes, kind, seed, device=DEVICE, dtype=DTYPE, frozen=is_frozen)
        return drawn.hidden, drawn.weight, drawn.batch

    (frozen if is_frozen else trainable).compare(
        benchmark,
        make_inputs,
        shape={"positions": sizes.positions, "scored": scored, "active": active}
        | {"width": sizes.width, "vocabulary": sizes.vocabulary},
        dtype=DTYPE,
        case=f"{kind}, {head} head, forward+backward",
        # The least: one product of the active rows for their log-probabilities, one for each
        # gradient. Rows that no gradient reaches need none.
        flops=active * product * (1 + gradients),
        rounds=ROUNDS,
        agree=Agree(gradients, TOLERANCE, on_scored_rows(exact_head)),
    )


def logits_gradient(loss: Tensor, values: Tensor) -> Tensor:
    return torch.autograd.grad(loss, values)[0]


def eager_logps(values: Tensor, targets: Tensor) -> Tensor:
    log_p = torch.log_softmax(values.float(), -1)
    return log_p.gather(-1, targets[..., None])[..., 0]


compiled_logps = torch.compile(eager_logps, dynamic=False)


def on_all_rows(logps_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(values: Tensor, batch: Batch) -> Tensor:
        logps = logps_of(values, batch.targets)
        return logits_gradient(clip_loss(logps, batch.advantages, batch.old, batch.mask), values)

    return run


def logits_of_rooms(values: Tensor, batch: Batch) -> Tensor:
    logps = token_logps(values, batch.targets).logps
    loss = policy_loss(
        logps.flatten(),
        batch.advantages,
        batch.every,
        scale=batch.scale,
        old=batch.old.flatten(),
        mask=batch.mask.flatten(),
        spec=SPEC,
    ).loss
    return logits_gradient(loss, values)


def fused_logits(inplace: bool) -> Callable[..., Tensor]:
    def run(values: Tensor, batch: Batch) -> Tensor:
        loss = policy_loss_from_logits(
            values,
            batch.targets,
            batch.advantages,
            batch.every,
            scale=batch.scale,
            old=batch.old.flatten(),
            mask=batch.mask.flatten(),
            spec=SPEC,
            inplace=inplace,
        ).loss
        return logits_gradient(loss, values)

    return run


def logits_of_peer(peer: Peer) -> Callable[..., Tensor]:
    def run(values: Tensor, batch: Batch) -> Tensor:
        loss = peer(values, batch.targets, batch.advantages, batch.old, batch.mask)
        return logits_gradient(loss, values)

    return run


def copied(values: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
    """Logits that may be overwritten; not a leaf, as a model's are not."""
    return values.clone(), batch


logits.provider("eager")(on_all_rows(eager_logps))
logits.provider("compiled", device="cuda")(on_all_rows(compiled_logps))
logits.provider("rrgkern")(fused_logits(inplace=False))
logits.provider("rrgkern in place", fresh=copied)(fused_logits(inplace=True))
logits.provider("rrgkern two rooms")(logits_of_rooms)
logits.peers("logits", logits_of_peer, fresh=copied)


@pytest.mark.parametrize("kind", ["dense", "domain"])
def test_logits(benchmark: Any, kind: str) -> None:
    sizes = LOGITS

    def make_inputs(seed: int) -> tuple[Tensor, Batch]:
        return draw_logits(sizes, kind, seed, device=DEVICE, dtype=DTYPE)

    rows, active = sizes.sequences * (sizes.length + 1), sizes.active(kind)
    logits.compare(
        benchmark,
        make_inputs,
        shape={"rows": rows, "scored": sizes.scored(kind), "active": active}
        | {"vocabulary": sizes.vocabulary},
        dtype=DTYPE,
        case=f"{kind}, forward+backward",
        # The active rows read once, the gradient of all of them written.
        bytes_moved=(active + rows) * sizes.vocabulary * DTYPE.itemsize,
        rounds=ROUNDS,
        agree=Agree(1, TOLERANCE),
    )
