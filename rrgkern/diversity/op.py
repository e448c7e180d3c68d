"""Dispatcher of diagnostic diversity and the draw by rank: csrc/diversity. No gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.checks import values_may_be_read
from rrgkern.dispatch import register_csrc
from rrgkern.diversity.reference import (
    diagnostic_diversity_reference,
    rank_sample_reference,
    ranks,
    smallest,
)


@torch.library.custom_op("rrgkern::diagnostic_diversity", mutates_args=())
def diagnostic_diversity_op(
    positive: Tensor, factor: Tensor, radical: Tensor, roots: Tensor
) -> Tensor:
    """[S, K, C] uint8, [K+1] int64, [K+1] int64, [B] fp64 -> [S] fp64."""
    return diagnostic_diversity_reference(positive, factor, radical, roots)


def _launch_diversity(positive: Tensor, factor: Tensor, radical: Tensor, roots: Tensor) -> Tensor:
    result = roots.new_empty(len(positive))
    inputs = (tensor.contiguous() for tensor in (positive, factor, radical, roots))
    getattr(csrc.load(), f"diagnostic_diversity_{result.device.type}")(*inputs, result)
    return result


register_csrc(diagnostic_diversity_op, _launch_diversity, ("cpu", "cuda"), "diversity")


@diagnostic_diversity_op.register_fake
def _(positive: Tensor, factor: Tensor, radical: Tensor, roots: Tensor) -> Tensor:
    return roots.new_empty(positive.shape[0])


@torch.library.custom_op("rrgkern::rank_sample", mutates_args=())
def rank_sample_op(diversity: Tensor, seed: int, count: int) -> tuple[Tensor, Tensor]:
    """[S] fp64 -> (index [count] int64, rank [S] int64)."""
    check_finite(diversity)
    return rank_sample_reference(diversity, seed, count)


def check_finite(diversity: Tensor) -> None:
    """Raise ValueError where a diversity is NaN or infinite."""
    fine = diversity.isfinite()
    if not values_may_be_read(diversity):
        torch._assert_async(fine.all(), "rank_sample: a diversity is NaN or infinite")
    elif not fine.all():
        at = int((~fine).nonzero()[0])
        raise ValueError(f"diversity is {float(diversity[at])} at study {at}, wanted a number")


def _launch_cpu(diversity: Tensor, seed: int, count: int) -> tuple[Tensor, Tensor]:
    check_finite(diversity)
    index = torch.empty(count, dtype=torch.int64)
    rank = torch.empty(len(diversity), dtype=torch.int64)
    csrc.load().rank_sample_cpu(diversity.contiguous(), seed, index, rank)
    return index, rank


def _launch_cuda(diversity: Tensor, seed: int, count: int) -> tuple[Tensor, Tensor]:
    check_finite(diversity)
    exponential, key = torch.empty_like(diversity), torch.empty_like(diversity)
    tie = torch.empty_like(diversity, dtype=torch.int64)
    csrc.load().rank_sample_draws_cuda(seed, tie, exponential)
    rank = ranks(diversity, tie)
    csrc.load().rank_sample_keys_cuda(exponential, rank, key)
    return smallest(key, count), rank


register_csrc(rank_sample_op, _launch_cpu, ("cpu",), "diversity")
register_csrc(rank_sample_op, _launch_cuda, ("cuda",), "diversity")


@rank_sample_op.register_fake
def _(diversity: Tensor, seed: int, count: int) -> tuple[Tensor, Tensor]:
    return diversity.new_empty(count, dtype=torch.int64), diversity.new_empty(
        diversity.shape, dtype=torch.int64
    )
