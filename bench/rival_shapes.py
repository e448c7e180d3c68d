"""Measure at the shapes of rivals' published numbers, forward and backward, on a CUDA GPU.

Liger's pull requests 1356 and 1334 (head and loss, H200) and RL-Kernel's page on log-probs from
logits (H200) give theirs in milliseconds: rrgkern/logps/README.md quotes them. The mean cross
entropy is the easier problem: its gradient is known before the loss is, as in `linear_policy_loss`
without old log-probabilities and with advantages of one, which is "rrgkern forward" here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.batch import DRY
from bench.harness import Agree, Bench
from rrgkern import linear_policy_loss, linear_token_logps, token_logps

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = torch.bfloat16 if CUDA else torch.float32
TOLERANCE = 0.05 if CUDA else 1e-3
ROUNDS = 10

pytestmark = pytest.mark.skipif(
    not CUDA and not DRY,
    reason="shapes of a GPU: needs CUDA, or RRGKERN_BENCH_DRY=1 for a few rows",
)

# rows, width, vocabulary
MEAN = [(8192, 4096, 128256), (2048, 3584, 152064), (2048, 5120, 152064)]
ENTROPY = [(4096, 2048, 131072), (4096, 4096, 131072)]
LOGITS = [(8192, 128256), (4096, 151936)]
if DRY:
    MEAN, ENTROPY, LOGITS = [(24, 16, 97)], [(24, 16, 97)], [(24, 97)]

mean, entropies, logits = Bench("rival_mean"), Bench("rival_entropy"), Bench("rival_logits")


def gradients(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs)


def from_mean(loss_of: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    def run(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return gradients(loss_of(hidden, weight, targets), hidden, weight)

    return run


def eager_mean(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy((hidden @ weight.T).float(), targets)


def recomputed_mean(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return -linear_token_logps(hidden, weight, targets).logps.mean()


def forward_mean(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    rows = len(hidden)
    return linear_policy_loss(
        hidden,
        weight,
        targets,
        torch.ones(1, device=hidden.device),
        torch.tensor([0, rows], device=hidden.device),
        scale=torch.full((1,), 1 / rows, device=hidden.device),
        metrics="computed",
        mode="grad_in_forward",
    ).loss


def without_torch_s(device: torch.device) -> str | None:
    return None if hasattr(F, "linear_cross_entropy") else f"torch {torch.__version__} has none"


def torch_mean(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.linear_cross_entropy(hidden, weight, targets)


mean.provider("eager")(from_mean(eager_mean))
mean.provider("rrgkern")(from_mean(recomputed_mean))
mean.provider("rrgkern forward")(from_mean(forward_mean))
mean.provider("F.linear_cross_entropy", needs=without_torch_s, peer=True)(from_mean(torch_mean))
mean.peers("mean", from_mean)


def draw(shape: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    rows, width, vocabulary = shape
    options: Any = {"device": DEVICE, "generator": torch.Generator(DEVICE).manual_seed(seed)}
    hidden = torch.randn(rows, width, **options).to(DTYPE).requires_grad_()
    weight = (torch.randn(vocabulary, width, **options) / width**0.5).to(DTYPE).requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (rows,), **options)


@pytest.mark.parametrize("shape", MEAN, ids=str)
def test_mean_cross_entropy(benchmark: Any, shape: tuple[int, int, int]) -> None:
    rows, width, vocabulary = shape
    mean.compare(
        benchmark,
        lambda seed: draw(shape, seed),
        shape={"rows": rows, "width": width, "vocabulary": vocabulary},
        dtype=DTYPE,
        case="mean cross entropy, forward+backward",
        flops=6 * rows * width * vocabulary,
        rounds=ROUNDS,
        agree=Agree(2, TOLERANCE),
    )


def from_both(
    both_of: Callable[..., tuple[Tensor, Tensor | None]],
) -> Callable[..., tuple[Tensor, ...]]:
    def run(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        logps, entropy = both_of(hidden, weight, targets)
        assert entropy is not None
        return gradients(logps.sum() + 0.01 * entropy.sum(), hidden, weight)

    return run


def eager_both(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    log_p = torch.log_softmax((hidden @ weight.T).float(), -1)
    return log_p.gather(-1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def our_both(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
    return linear_token_logps(hidden, weight, targets, entropy=True)


entropies.provider("eager")(from_both(eager_both))
entropies.provider("rrgkern")(from_both(our_both))
entropies.peers("entropies", from_both)


@pytest.mark.parametrize("shape", ENTROPY, ids=str)
def test_logps_and_entropy(benchmark: Any, shape: tuple[int, int, int]) -> None:
    rows, width, vocabulary = shape
    entropies.compare(
        benchmark,
        lambda seed: draw(shape, seed),
        shape={"rows": rows, "width": width, "vocabulary": vocabulary},
        dtype=DTYPE,
        case="log-probs and entropy, forward+backward",
        flops=8 * rows * width * vocabulary,
        rounds=ROUNDS,
        agree=Agree(2, TOLERANCE),
    )


def from_logits(losses_of: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    def run(values: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return gradients(losses_of(values, targets).sum(), values)

    return run


def eager_losses(values: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(values.float(), targets, reduction="none")


def ours_losses(values: Tensor, targets: Tensor) -> Tensor:
    return -token_logps(values, targets).logps


logits.provider("eager")(from_logits(eager_losses))
logits.provider("rrgkern")(from_logits(ours_losses))
logits.peers("losses", from_logits)


@pytest.mark.parametrize("shape", LOGITS, ids=str)
def test_from_logits(benchmark: Any, shape: tuple[int, int]) -> None:
    rows, vocabulary = shape

    def make_inputs(seed: int) -> tuple[Tensor, Tensor]:
        options: Any = {"device": DEVICE, "generator": torch.Generator(DEVICE).manual_seed(seed)}
        values = torch.randn(rows, vocabulary, **options).to(DTYPE).requires_grad_()
        return values, torch.randint(vocabulary, (rows,), **options)

    logits.compare(
        benchmark,
        make_inputs,
        shape={"rows": rows, "vocabulary": vocabulary},
        dtype=DTYPE,
        case="log-probs from logits, forward+backward",
        # Read for the sum and again for the gradient, which is written.
        bytes_moved=3 * rows * vocabulary * DTYPE.itemsize,
        rounds=ROUNDS,
        agree=Agree(1, TOLERANCE),
    )
