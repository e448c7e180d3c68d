"""Log-probabilities from hidden states, and the gradients of hidden states and head.

A batch of the domain: 60 % of the positions are prompt or padding, which no provider multiplies
with the head; 35 % of the scored ones belong to groups without variance.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bench.batch import DRY, KINDS
from bench.harness import Bench
from bench.peers import Peer
from rrgkern import linear_token_logps

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
MASKED, ZERO_VARIANCE = KINDS["domain"]
# (positions, width, vocabulary, dtype): the trainer's demo model, and Qwen2.5-VL-3B's head.
SHAPES = (
    [(40, 16, 97, torch.float32)]
    if DRY
    else [(8192, 2048, 151936, torch.bfloat16), (32768, 2048, 151936, torch.bfloat16)]
    if CUDA
    else [(3000, 128, 600, torch.float32), (256, 256, 151936, torch.float32)]
)

bench = Bench("linear_token_logps")


def plain(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    log_p = torch.log_softmax((hidden @ weight.T).float(), -1)
    return log_p.gather(-1, targets[:, None])[:, 0]


fused = torch.compile(plain, dynamic=False)


def gradients(logps: Tensor, coef: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    wanted = [x for x in (hidden, weight) if x.requires_grad]
    return torch.autograd.grad((coef * logps).sum(), wanted)


@bench.provider("eager")
def eager(
    hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
) -> tuple[Tensor, ...]:
    return gradients(plain(hidden[scored], weight, targets), coef, hidden, weight)


@bench.provider("compiled")
def compiled(
    hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
) -> tuple[Tensor, ...]:
    return gradients(fused(hidden[scored], weight, targets), coef, hidden, weight)


@bench.provider("rrgkern")
def ours(
    hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
) -> tuple[Tensor, ...]:
    logps = linear_token_logps(hidden[scored], weight, targets).logps
    return gradients(logps, coef, hidden, weight)


def of_peer(peer: Peer) -> Callable[..., tuple[Tensor, ...]]:
    def run(
        hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
    ) -> tuple[Tensor, ...]:
        return gradients(peer(hidden[scored], weight, targets), coef, hidden, weight)

    return run


bench.peers("states", of_peer)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("frozen", [False, True], ids=["trainable head", "frozen head"])
def test_forward_and_backward(benchmark, shape, frozen):
    positions, width, vocabulary, dtype = shape
    rows = round(positions * (1 - MASKED))
    active = round(rows * (1 - ZERO_VARIANCE))

    def make_inputs(seed: int) -> tuple[Tensor, ...]:
        generator = torch.Generator(DEVICE).manual_seed(seed)
        options = {"device": DEVICE, "generator": generator}
        hidden = torch.randn(positions, width, **options).to(dtype).requires_grad_()
        weight = (torch.randn(vocabulary, width, **options) / width**0.5).to(dtype)
        scored = torch.randperm(positions, **options)[:rows].sort().values
        targets = torch.randint(vocabulary, (rows,), **options)
        coef = torch.randn(rows, **options)
        coef[active:] = 0
        return hidden, weight.requires_grad_(not frozen), scored, targets, coef

    product = 2 * width * vocabulary
    bench.compare(
        benchmark,
        make_inputs,
        shape={"positions": positions, "rows": rows, "active": active}
        | {"width": width, "vocabulary": vocabulary},
        dtype=dtype,
        case="forward+backward, frozen head" if frozen else "forward+backward",
        flops=rows * product + active * product * (2 if frozen else 3),
        rounds=20 if CUDA or vocabulary < 10_000 else 5,
        agree=(1 if frozen else 2, 0.05 if CUDA else 1e-3),
    )
