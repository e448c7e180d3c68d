"""Inputs, eager PyTorch and the fp64 truth for log-probabilities from hidden states."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern import linear_token_logps
from rrgkern.logps import triton_tile
from rrgkern.logps.from_hidden import TORCH_TILES
from rrgkern.logps.head import Head, Tile
from rrgkern.logps.inputs import FromHidden
from rrgkern.logps.online_softmax import Coefficients, RowSums, stats_dtype
from rrgkern.logps.reference import token_logps_reference, token_logps_reference_backward
from tests.rrgkern.device import DEVICE
from tests.tolerance import assert_close_to_truth


def head_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, softcap: float) -> Tensor:
    """Logits [N, V], softcap * tanh((hidden W^T + bias) / softcap), in the statistics' dtype."""
    wide = stats_dtype(hidden.dtype)
    logits = hidden.to(wide) @ weight.to(hidden.dtype).to(wide).T
    if bias is not None:
        logits = logits + bias.to(wide)
    return softcap * torch.tanh(logits / softcap) if softcap else logits


def linear_token_logps_reference(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float = 1.0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """logps and entropy [N], differentiable by autograd."""
    logits = head_logits(hidden, weight, bias, softcap)
    return token_logps_reference(logits, targets, temperature)


def linear_token_logps_reference_backward(
    coefficients: Coefficients, x: FromHidden
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of sum(coef * logps + coef_entropy * entropy) for hidden, weight and bias."""
    logits = head_logits(x.hidden, x.weight, x.bias, x.softcap)
    dz = token_logps_reference_backward(*coefficients, logits, x.targets, x.temperature)
    if x.softcap:
        dz = dz * (1 - (logits / x.softcap) ** 2)
    wide = dz.dtype
    return (
        (dz @ x.weight.to(x.hidden.dtype).to(wide)).to(x.hidden.dtype),
        (dz.T @ x.hidden.to(wide)).to(x.weight.dtype),
        dz.sum(0).to(x.weight.dtype if x.bias is None else x.bias.dtype),
    )


class Problem(NamedTuple):
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    coef: Tensor
    coef_entropy: Tensor
    temperature: float = 1.0
    softcap: float | None = None


class Outcome(NamedTuple):
    logps: Tensor
    entropy: Tensor
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None


def problem(
    rows: int,
    width: int,
    vocabulary: int,
    dtype: torch.dtype = torch.float32,
    bias: bool = False,
    seed: int = 0,
    **options: float,
) -> Problem:
    """Logits of spread 3, coefficients of both signs; every third row has coefficients 0."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator)
    weight = torch.randn(vocabulary, width, generator=generator) * 3 / width**0.5
    offsets = torch.randn(vocabulary, generator=generator) if bias else None
    targets = torch.randint(vocabulary, (rows,), generator=generator).to(DEVICE)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    coefs = torch.randn(2, rows, generator=generator, dtype=wide).to(DEVICE)
    coefs[:, ::3] = 0
    operands = [None if x is None else x.to(DEVICE, dtype) for x in (hidden, weight, offsets)]
    return Problem(*operands, targets, *coefs, **options)


def run(function, given: Problem) -> Outcome:
    """`function(hidden, weight, bias, targets, temperature, softcap)` and its gradients."""
    leaves = [x.detach().requires_grad_() for x in given[:3] if x is not None]
    hidden, weight, *bias = leaves
    logps, entropy = function(
        *(hidden, weight, bias[0] if bias else None),
        *(given.targets, given.temperature, given.softcap),
    )
    total = (given.coef * logps).sum() + (given.coef_entropy * entropy).sum()
    gradients = torch.autograd.grad(total, leaves)
    return Outcome(logps.detach(), entropy.detach(), *gradients, *([None] * (3 - len(leaves))))


def ours(given: Problem) -> Outcome:
    def function(hidden, weight, bias, targets, temperature, softcap):
        return linear_token_logps(
            *(hidden, weight, targets),
            bias=bias,
            temperature=temperature,
            softcap=softcap,
            entropy=True,
        )

    return run(function, given)


def eager(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """Compute what one writes without this library: the head in its dtype, log_softmax in fp32."""
    logits = torch.nn.functional.linear(hidden, weight, bias)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    log_p = torch.log_softmax(logits / temperature, -1)
    return log_p.gather(-1, targets[..., None])[..., 0], -(log_p.exp() * log_p).sum(-1)


def check(actual: Outcome, given: Problem, roundings: float = 4.0) -> None:
    """Values one by one, gradients row by row, against the fp64 reference.

    roundings: how often a sum's terms may be rounded, in units of fp32.
    """

    def exact(hidden, weight, bias, targets, temperature, softcap):
        return linear_token_logps_reference(
            hidden, weight, bias, targets, temperature, softcap or 0.0
        )

    doubled = Problem(
        *(x if x is None or not x.is_floating_point() else x.double() for x in given[:6]),
        *given[6:],
    )
    truth, plain, terms = run(exact, doubled), run(eager, given), _terms(doubled)
    for name, got, want, yardstick in zip(Outcome._fields, actual, truth, plain, strict=True):
        if want is None:
            assert got is None, f"a gradient of {name} came from nowhere"
        elif given.hidden.dtype == torch.float64:
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12, msg=name)
        else:
            # Of thousands of rows eager hits some by luck. A sum is known to a rounding of its
            # terms, which are larger than it where they cancel.
            rounding = roundings * torch.finfo(torch.float32).eps * getattr(terms, name)
            rounding += torch.finfo(got.dtype).eps * (want.norm(dim=-1) if want.ndim > 1 else 0)
            assert_close_to_truth(got, yardstick, want, tiny=rounding)


def _terms(given: Problem) -> Outcome:
    """Size of the terms that each value, and each row of a gradient, is the sum of."""
    softcap = given.softcap or 0.0
    logits = head_logits(given.hidden, given.weight, given.bias, softcap)
    spread = (logits / given.temperature).abs().amax(1)
    none = torch.zeros_like(given.coef)
    dz = sum(
        token_logps_reference_backward(*coefs, logits, given.targets, given.temperature).abs()
        for coefs in ((given.coef, none), (none, given.coef_entropy))
    )
    return Outcome(
        logps=spread,
        entropy=spread,
        hidden=(dz @ given.weight.abs()).norm(dim=1) * spread,
        weight=(dz.T @ (given.hidden.abs() * spread[:, None])).norm(dim=1),
        bias=dz.T @ spread,
    )


# One tile of logits through Triton's steps and through PyTorch's.
def check_tile(width: int = 2128) -> None:
    """Compare a tile of two whole blocks and a tail; targets in each of them and in none."""
    targets = torch.tensor([1030, 2100, 5, 9000], device=DEVICE)
    z, coef = torch.randn(4, width).to(DEVICE), torch.randn(4).to(DEVICE)
    head = Head(torch.empty(10000, 1, device=DEVICE), None, 0.7, 0.0, torch.float32)
    results = []
    for steps in (triton_tile.TILES.kernels, TORCH_TILES.kernels):
        sums = RowSums.empty(z, 4, torch.float32)
        tile = Tile(z.clone(), targets, slice(0, width), head, z.new_empty(4 * width))
        exponentials = steps.exponentials(tile, sums, True)[0].clone()
        results.append([exponentials, *sums.others])
        sums.target_logit.nan_to_num_(0.3)
        tile = tile._replace(z=z.clone())
        gradient = steps.tile_gradient(tile, sums.close(0.7, True), Coefficients(coef, coef))
        results[-1].append(gradient.clone())
    for ours, wanted in zip(*results, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)
