"""Diagnostic diversity and the draw by rank in plain PyTorch, bit for bit the kernels'."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.random import philox4x32

WORD = 0xFFFFFFFF


def diagnostic_diversity_reference(
    positive: Tensor, factor: Tensor, radical: Tensor, roots: Tensor
) -> Tensor:
    """Map [S, K, C] to [S] fp64, Σ_c sqrt(n (K − n)) / K (DEER).

    `factor` and `radical` [K+1] and `roots` [B] are the tables of `deviations`. The factors of
    each root are added as integers, the roots in their order.
    """
    studies, samples, _ = positive.shape
    count = positive.long().sum(1)
    factors = count.new_zeros(studies, len(roots)).scatter_add_(1, radical[count], factor[count])
    total = roots.new_zeros(studies)
    for b in range(len(roots)):
        total = total + factors[:, b].double() * roots[b]
    return total / samples


def rank_sample_reference(diversity: Tensor, seed: int, count: int) -> tuple[Tensor, Tensor]:
    """(index [count], rank [S]), see `rank_sample`; diversity in fp64."""
    tie, exponential = study_draws(len(diversity), seed, diversity.device)
    rank = ranks(diversity, tie)
    return smallest(exponential * plain_log((rank + 1).double()), count), rank


def ranks(diversity: Tensor, tie: Tensor) -> Tensor:
    """Rank each study from 1 on: by falling diversity, rising `tie`, then index."""
    order = tie.argsort(stable=True)
    # Adding 0 makes -0 and 0 one number to a sort that looks at bits.
    order = order[(diversity + 0.0)[order].argsort(descending=True, stable=True)]
    places = torch.arange(1, len(order) + 1, device=order.device)
    return torch.empty_like(order).scatter_(0, order, places)


def smallest(keys: Tensor, count: int) -> Tensor:
    """Find the places of the `count` smallest keys, rising; among equals the lowest first."""
    return keys.argsort(stable=True)[:count].clone()


def study_draws(studies: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw for each study 63 bits that order equals, and an exponential variate in fp64.

    Words 0 and 1 of Philox at counter (study, 0, 0) under the seed make the bits. Words 2 and 3
    make an odd multiple of 2^-53, uniform in (0, 1), whose negative logarithm is the variate.
    """
    index = torch.arange(studies, device=device)
    none, key = torch.zeros_like(index), (seed & WORD, seed >> 32 & WORD)
    words = philox4x32((index & WORD, index >> 32, none, none), key)
    first, second = (words[k] | words[k + 1] << 32 for k in (0, 2))
    # Right shifts of int64 copy the sign: the mask takes it away.
    tie = first >> 1 & (1 << 63) - 1
    uniform = (2 * (second >> 12 & (1 << 52) - 1) + 1).double() * 2.0**-53
    return tie, -plain_log(uniform)


def plain_log(values: Tensor) -> Tensor:
    """Natural logarithm of positive fp64 numbers from basic operations, each rounded by IEEE 754:
    no two libraries agree on its last bit.

    With m in [sqrt ½, sqrt 2): ln m = 2 artanh s = 2 s (1 + s²/3 + s⁴/5 + ...), s = (m−1)/(m+1).
    """
    m, exponent = torch.frexp(values)
    low = m < 0.70710678118654752
    m, exponent = torch.where(low, m * 2, m), exponent - low.int()
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    tail = torch.zeros_like(s)
    for odd in range(23, 1, -2):
        tail = (tail + 1.0 / odd) * square
    return exponent.double() * 0.69314718055994531 + 2.0 * s * (1.0 + tail)
