"""Log-probabilities: from logits in memory, with and without entropy, and from hidden states.

A batch of the domain: 60 % of the rows are prompt or padding, and 35 % of the others belong to
groups without variance, so 26 % of the rows have a gradient. From hidden states no provider
multiplies prompt or padding with the head, and the gradients are those of hidden states and head.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bench.batch import DRY, KINDS
from bench.harness import Agree, Bench
from bench.peers import Peer
from rrgkern import linear_token_logps, token_logps

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
VOCABULARY = 97 if DRY else 151936
ROWS = 20 if DRY else 8192 if CUDA else 96
MASKED, ZERO_VARIANCE = KINDS["domain"]
TEMPERATURE = 0.9

from_logits = Bench("token_logps")
from_logits_entropy = Bench("token_logps")


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


@from_logits.provider("eager")
def eager(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, _ = plain(logits, targets, False)
    return objective(logps, coef, logits, None)


@from_logits.provider("compiled")
def compiled(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, _ = fused(logits, targets, False)
    return objective(logps, coef, logits, None)


@from_logits.provider("rrgkern")
def ours(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, _ = token_logps(logits, targets, temperature=TEMPERATURE)
    return objective(logps, coef, logits, None)


@from_logits_entropy.provider("eager")
def eager_entropy(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, entropy = plain(logits, targets, True)
    return objective(logps, coef, logits, entropy)


@from_logits_entropy.provider("compiled")
def compiled_entropy(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, entropy = fused(logits, targets, True)
    return objective(logps, coef, logits, entropy)


@from_logits_entropy.provider("rrgkern")
def ours_entropy(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
    logps, entropy = token_logps(logits, targets, temperature=TEMPERATURE, entropy=True)
    return objective(logps, coef, logits, entropy)


def of_peer(peer: Peer, entropy: bool) -> Callable[..., Tensor]:
    def run(logits: Tensor, targets: Tensor, coef: Tensor) -> Tensor:
        logps, entropies = peer(logits, targets, temperature=TEMPERATURE, entropy=entropy)
        return objective(logps, coef, logits, entropies)

    return run


from_logits.peers("rows", lambda peer: of_peer(peer, False))
from_logits_entropy.peers("rows", lambda peer: of_peer(peer, True))


def make_inputs(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    shape = {"device": DEVICE, "generator": generator}
    logits = torch.randn(ROWS, VOCABULARY, **shape).to(torch.bfloat16).requires_grad_()
    targets = torch.randint(VOCABULARY, (ROWS,), **shape)
    coef = torch.randn(ROWS, **shape)
    coef[: round(ROWS * MASKED)] = 0
    coef[round(ROWS * (1 - (1 - MASKED) * ZERO_VARIANCE)) :] = 0
    return logits, targets, coef


@pytest.mark.parametrize(
    "which", [from_logits, from_logits_entropy], ids=["logps", "logps+entropy"]
)
def test_from_logits(benchmark, which):
    logits_bytes = ROWS * VOCABULARY * 2
    active = (1 - MASKED) * (1 - ZERO_VARIANCE)
    which.compare(
        benchmark,
        make_inputs,
        shape={"rows": ROWS, "vocabulary": VOCABULARY, "active": active},
        dtype=torch.bfloat16,
        case="forward+backward" + (", entropy" if which is from_logits_entropy else ""),
        # Read once; of the gradient all is written, and the active rows are read again for it.
        bytes_moved=logits_bytes * (2 + active),
        rounds=20 if CUDA else 5,
        agree=Agree(1, 0.02),
    )


# (positions, width, vocabulary, dtype): the trainer's demo model, and Qwen2.5-VL-3B's head.
SHAPES = (
    [(40, 16, 97, torch.float32)]
    if DRY
    else [(8192, 2048, 151936, torch.bfloat16), (32768, 2048, 151936, torch.bfloat16)]
    if CUDA
    else [(3000, 128, 600, torch.float32), (256, 256, 151936, torch.float32)]
)

from_hidden = Bench("linear_token_logps")


def plain_head(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    log_p = torch.log_softmax((hidden @ weight.T).float(), -1)
    return log_p.gather(-1, targets[:, None])[:, 0]


fused_head = torch.compile(plain_head, dynamic=False)


def gradients(logps: Tensor, coef: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    wanted = [x for x in (hidden, weight) if x.requires_grad]
    return torch.autograd.grad((coef * logps).sum(), wanted)


@from_hidden.provider("eager")
def eager_head(
    hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
) -> tuple[Tensor, ...]:
    return gradients(plain_head(hidden[scored], weight, targets), coef, hidden, weight)


@from_hidden.provider("compiled")
def compiled_head(
    hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
) -> tuple[Tensor, ...]:
    return gradients(fused_head(hidden[scored], weight, targets), coef, hidden, weight)


@from_hidden.provider("rrgkern")
def ours_head(
    hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
) -> tuple[Tensor, ...]:
    logps = linear_token_logps(hidden[scored], weight, targets).logps
    return gradients(logps, coef, hidden, weight)


def of_head_peer(peer: Peer) -> Callable[..., tuple[Tensor, ...]]:
    def run(
        hidden: Tensor, weight: Tensor, scored: Tensor, targets: Tensor, coef: Tensor
    ) -> tuple[Tensor, ...]:
        return gradients(peer(hidden[scored], weight, targets), coef, hidden, weight)

    return run


from_hidden.peers("states", of_head_peer)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("frozen", [False, True], ids=["trainable head", "frozen head"])
def test_from_hidden(benchmark, shape, frozen):
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
    from_hidden.compare(
        benchmark,
        make_inputs,
        shape={"positions": positions, "rows": rows, "active": active}
        | {"width": width, "vocabulary": vocabulary},
        dtype=dtype,
        case="forward+backward, frozen head" if frozen else "forward+backward",
        flops=rows * product + active * product * (2 if frozen else 3),
        rounds=20 if CUDA or vocabulary < 10_000 else 5,
        agree=Agree(1 if frozen else 2, 0.05 if CUDA else 1e-3),
    )
