"""One step of the policy's head and loss, forward and backward, against every peer of bench/peers.

`test_head` starts from hidden states, `test_logits` from logits that are in memory already. Both
measure PPO's clip with the old log-probabilities given, on a dense batch and on the batch of the
domain, and a provider is timed only if its gradients are those of eager PyTorch.

    make bench-peers        on a CPU: ratios and peak memory, rows in bench/results/cpu-peers.jsonl
    make gpu                on a GPU, with the targets of bench/targets.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.batch import DRY, Batch, Sizes, draw_head, draw_logits
from bench.harness import Bench
from bench.peers import EPSILON, Peer, clip_loss
from rrgkern import PolicyLoss, linear_token_logps, policy_loss, token_logps

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = torch.bfloat16 if CUDA else torch.float32
# ‖difference‖ / ‖eager‖ of a gradient: bf16 products of eager are rounded themselves.
TOLERANCE = 0.05 if CUDA else 1e-3
SPEC = PolicyLoss(eps_low=EPSILON, eps_high=EPSILON)

if DRY:
    HEAD = LOGITS = Sizes(groups=3, members=2, length=8, width=16, vocabulary=97)
elif CUDA:
    # 8192 positions of Qwen2.5-VL-3B.
    HEAD = LOGITS = Sizes(groups=32, members=4, length=64, width=2048, vocabulary=151936)
else:
    HEAD = Sizes(groups=8, members=2, length=12, width=64, vocabulary=151936)
    LOGITS = Sizes(groups=4, members=2, length=8, width=0, vocabulary=151936)

ROUNDS = 20 if CUDA else 5

head = Bench("linear_grpo_loss")
logits = Bench("grpo_loss")


def head_gradients(loss: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [x for x in (hidden, weight) if x.requires_grad])


def ours(logps: Tensor, batch: Batch, spec: PolicyLoss = SPEC) -> Tensor:
    """The loss of [N] log-probabilities of the scored tokens."""
    return policy_loss(
        logps,
        batch.advantages,
        batch.offsets,
        scale=batch.scale,
        old=batch.old[batch.mask],
        spec=spec,
    ).loss


def eager_head(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    log_p = torch.log_softmax((hidden @ weight.T).float(), -1)
    return log_p.gather(-1, targets[..., None])[..., 0]


compiled_head = torch.compile(eager_head, dynamic=False)


def on_scored_rows(logps_of: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """Log-probabilities of the scored rows alone, then the loss as one writes it."""

    def run(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        rows = logps_of(hidden[batch.mask], weight, batch.targets[batch.mask])
        logps = torch.zeros_like(batch.old).masked_scatter(batch.mask, rows)
        loss = clip_loss(logps, batch.advantages, batch.old, batch.mask)
        return head_gradients(loss, hidden, weight)

    return run


head.provider("eager")(on_scored_rows(eager_head))
head.provider("compiled", device="cuda")(on_scored_rows(compiled_head))


@head.provider("rrgkern")
def head_of_ours(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
    rows = linear_token_logps(hidden[batch.mask], weight, batch.targets[batch.mask]).logps
    return head_gradients(ours(rows, batch), hidden, weight)


def head_of_peer(peer: Peer) -> Callable[..., tuple[Tensor, ...]]:
    def run(hidden: Tensor, weight: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        loss = peer(hidden, weight, batch.targets, batch.advantages, batch.old, batch.mask)
        return head_gradients(loss, hidden, weight)

    return run


head.peers("head", head_of_peer)


@pytest.mark.parametrize(
    ("kind", "frozen"),
    [
        ("dense", False),
        ("sparse", False),
        ("domain", False),
        ("dense", True),
        ("domain", True),
    ],
)
def test_head(benchmark: Any, kind: str, frozen: bool) -> None:
    sizes = HEAD
    scored, active = sizes.scored(kind), sizes.active(kind)
    product = 2 * sizes.width * sizes.vocabulary

    def make_inputs(seed: int) -> tuple[Tensor, Tensor, Batch]:
        drawn = draw_head(sizes, kind, seed, device=DEVICE, dtype=DTYPE, frozen=frozen)
        return drawn.hidden, drawn.weight, drawn.batch

    head.compare(
        benchmark,
        make_inputs,
        shape={"positions": sizes.positions, "scored": scored, "active": active}
        | {"width": sizes.width, "vocabulary": sizes.vocabulary},
        dtype=DTYPE,
        case=f"{kind}, {'frozen' if frozen else 'trainable'} head, forward+backward",
        # The least: one product of the scored rows, and of the active ones one or two more.
        flops=scored * product + active * product * (1 if frozen else 2),
        rounds=ROUNDS,
        agree=(1 if frozen else 2, TOLERANCE),
    )


def logits_gradient(loss: Tensor, values: Tensor) -> Tensor:
    return torch.autograd.grad(loss, values)[0]


def eager_logps(values: Tensor, targets: Tensor) -> Tensor:
    log_p = torch.log_softmax(values[:, :-1].float(), -1)
    return log_p.gather(-1, targets[..., None])[..., 0]


compiled_logps = torch.compile(eager_logps, dynamic=False)


def on_all_rows(logps_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(values: Tensor, batch: Batch) -> Tensor:
        logps = logps_of(values, batch.targets)
        return logits_gradient(clip_loss(logps, batch.advantages, batch.old, batch.mask), values)

    return run


logits.provider("eager")(on_all_rows(eager_logps))
logits.provider("compiled", device="cuda")(on_all_rows(compiled_logps))


@logits.provider("rrgkern")
def logits_of_ours(values: Tensor, batch: Batch) -> Tensor:
    logps = token_logps(values[:, :-1], batch.targets).logps
    return logits_gradient(ours(logps[batch.mask], batch), values)


def logits_of_peer(peer: Peer) -> Callable[..., Tensor]:
    def run(values: Tensor, batch: Batch) -> Tensor:
        loss = peer(values, batch.targets, batch.advantages, batch.old, batch.mask)
        return logits_gradient(loss, values)

    return run


_scratch: dict[tuple[Any, ...], Tensor] = {}


def copied(values: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
    """The logits in a buffer that may be overwritten; one buffer for all rounds."""
    key = (values.shape, values.dtype, values.device)
    if key not in _scratch:
        _scratch[key] = torch.empty_like(values)
    buffer = _scratch[key].detach()
    buffer.copy_(values.detach())
    return buffer.requires_grad_(), batch


logits.peers("logits", logits_of_peer, fresh=copied)


@pytest.mark.parametrize("kind", ["dense", "domain"])
def test_logits(benchmark: Any, kind: str) -> None:
    sizes = LOGITS

    def make_inputs(seed: int) -> tuple[Tensor, Batch]:
        return draw_logits(sizes, kind, seed, device=DEVICE, dtype=DTYPE)

    rows = sizes.sequences * (sizes.length + 1)
    logits.compare(
        benchmark,
        make_inputs,
        shape={"rows": rows, "scored": sizes.scored(kind), "active": sizes.active(kind)}
        | {"vocabulary": sizes.vocabulary},
        dtype=DTYPE,
        case=f"{kind}, forward+backward",
        # The scored rows read once, the gradient of all of them written.
        bytes_moved=(sizes.scored(kind) + rows) * sizes.vocabulary * DTYPE.itemsize,
        rounds=ROUNDS,
        agree=(1, TOLERANCE),
    )
    _scratch.clear()
