"""Log-probabilities and entropy from logits that are already in memory.

A batch of the domain: 60 % of the rows are prompt or padding, and 35 % of the others belong to
groups without variance, so 26 % of the rows have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bench.batch import DRY, KINDS
from bench.harness import Bench
from bench.peers import Peer
from rrgkern import token_logps

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
VOCABULARY = 97 if DRY else 151936
ROWS = 20 if DRY else 8192 if CUDA else 96
MASKED, ZERO_VARIANCE = KINDS["domain"]
TEMPERATURE = 0.9

bench = Bench("token_logps")
with_entropy = Bench("token_logps")


def objective(logps: Tensor, coef: Tensor, logits: Tensor, entropy: Tensor | None) -> Tensor:
    total = (coef * logps).sum()
    if entropy is not None:
        total = total + 0.01 * (entropy * (coef != 0)).sum()
    return torch.autograd.grad(total, logits)[0]


def plain(logits: Tensor, targets: Tensor, entropy: bool) -> tuple[Tensor, Tensor | None]:
    log_p = torch.log_softmax(logits.float() / TEMPERATURE, -1)
    logps = log_p.gather(-1, targets[:, None])[:, 0]
    return logps, -(log_p.exp() * log_p).sum(-1) if entropy else None


fused = torch.compile(plain, dynamic=False)


@bench.provider("eager")
def eager(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, _ = plain(logits, targets, False)
    return objective(logps, coef, logits, None)


@bench.provider("compiled")
def compiled(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, _ = fused(logits, targets, False)
    return objective(logps, coef, logits, None)


@bench.provider("rrgkern")
def ours(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, _ = token_logps(logits, targets, temperature=TEMPERATURE)
    return objective(logps, coef, logits, None)


@with_entropy.provider("eager")
def eager_entropy(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, entropy = plain(logits, targets, True)
    return objective(logps, coef, logits, entropy)


@with_entropy.provider("compiled")
def compiled_entropy(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, entropy = fused(logits, targets, True)
    return objective(logps, coef, logits, entropy)


@with_entropy.provider("rrgkern")
def ours_entropy(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, entropy = token_logps(logits, targets, temperature=TEMPERATURE, entropy=True)
    return objective(logps, coef, logits, entropy)


def of_peer(peer: Peer, entropy: bool) -> Callable[..., Tensor]:
    def run(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
        logps, entropies = peer(logits, targets, temperature=TEMPERATURE, entropy=entropy)
        return objective(logps, coef, logits, entropies)

    return run


bench.peers("rows", lambda peer: of_peer(peer, False))
with_entropy.peers("rows", lambda peer: of_peer(peer, True))


def make_inputs(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    shape = {"device": DEVICE, "generator": generator}
    logits = torch.randn(ROWS, VOCABULARY, **shape).to(torch.bfloat16).requires_grad_()
    targets = torch.randint(VOCABULARY, (ROWS,), **shape)
    coef = torch.randn(ROWS, **shape)
    coef[: round(ROWS * MASKED)] = 0
    coef[round(ROWS * (1 - (1 - MASKED) * ZERO_VARIANCE)) :] = 0
    return logits, targets, coef


@pytest.mark.parametrize("which", [bench, with_entropy], ids=["logps", "logps+entropy"])
def test_forward_and_backward(benchmark, which):
    logits_bytes = ROWS * VOCABULARY * 2
    active = (1 - MASKED) * (1 - ZERO_VARIANCE)
    which.compare(
        benchmark,
        make_inputs,
        shape={"rows": ROWS, "vocabulary": VOCABULARY, "active": active},
        dtype=torch.bfloat16,
        case="forward+backward" + (", entropy" if which is with_entropy else ""),
        # Read once; of the gradient all is written, and the active rows are read again for it.
        bytes_moved=logits_bytes * (2 + active),
        rounds=20 if CUDA else 5,
        agree=(1, 0.02),
    )
