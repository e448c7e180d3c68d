"""The ops of diagnostic diversity and the draw by rank: PyTorch on every device. No gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import values_may_be_read
from rrgkern.diversity.reference import diagnostic_diversity_reference, rank_sample_reference


@torch.library.custom_op("rrgkern::diagnostic_diversity", mutates_args=())
def diagnostic_diversity_op(
    positive: Tensor, factor: Tensor, radical: Tensor, roots: Tensor
) -> Tensor:
    """[S, K, C] uint8, [K+1] int64, [K+1] int64, [B] fp64 -> [S] fp64."""
    return diagnostic_diversity_reference(positive, factor, radical, roots)


@diagnostic_diversity_op.register_fake
def _(positive: Tensor, factor: Tensor, radical: Tensor, roots: Tensor) -> Tensor:
    return roots.new_empty(positive.shape[0])


@torch.library.custom_op("rrgkern::rank_sample", mutates_args=())
def rank_sample_op(diversity: Tensor, seed: int, count: int) -> tuple[Tensor, Tensor]:
    """[S] fp64 -> (index [count] int64, rank [S] int64)."""
    fine = diversity.isfinite()
    if not values_may_be_read(diversity):
        torch._assert_async(fine.all(), "rank_sample: a diversity is NaN or infinite")
    elif not fine.all():
        at = int((~fine).nonzero()[0])
        raise ValueError(f"diversity is {float(diversity[at])} at study {at}, wanted a number")
    return rank_sample_reference(diversity, seed, count)


@rank_sample_op.register_fake
def _(diversity: Tensor, seed: int, count: int) -> tuple[Tensor, Tensor]:
    return diversity.new_empty(count, dtype=torch.int64), diversity.new_empty(
        diversity.shape, dtype=torch.int64
    )
