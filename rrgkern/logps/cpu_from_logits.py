"""Serve CPUs from logits, a few rows at a time.

There is no wide copy of [N, V]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps import cpu_tile
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import Coefficients, RowSums, SoftmaxStats, stats_dtype

# 4 MiB of fp32, about the cache of a core and its share of the last level.
TILE_ELEMENTS = 1 << 20


def forward(
    logits: Tensor, targets: Tensor, temperature: float, entropy: bool, keep: Tensor | None = None
) -> SoftmaxStats:
    """logits [N, V] or [B, L, V], targets [N] -> statistics of each row.

    Rows outside `keep` [N] are not read; their statistics are 0.
    """
    vocabulary = logits.shape[-1]
    check_targets(targets, vocabulary, keep)
    columns = slice(0, vocabulary)
    dtype = stats_dtype(logits.dtype)
    sizes = (len(targets), len(targets) if entropy else 0, len(targets), len(targets))
    stats = SoftmaxStats(*(logits.new_zeros(size, dtype=dtype) for size in sizes))
    for part in _wide_rows(logits, keep):
        target_logit = part.z.new_empty(len(part.z))
        cpu_tile.take_target(part.z, targets[part.rows], columns, target_logit)
        others = cpu_tile.sum_columns(part.z, temperature, entropy)
        rows = RowSums(others, target_logit).close(temperature, entropy)
        for whole, piece in zip(stats, rows, strict=True):
            if len(piece):
                whole[part.rows] = piece
    return stats


def backward(
    coefficients: Coefficients,
    logits: Tensor,
    targets: Tensor,
    stats: SoftmaxStats,
    temperature: float,
    *,
    inplace: bool = False,
) -> Tensor:
    """Gradient of the logits; rows whose coefficients are both 0 are not read.

    Contiguous and new; or, `inplace`, the logits themselves, overwritten.
    """
    active = coefficients.active()
    if inplace:
        gradient = logits
    else:
        gradient = torch.zeros(logits.shape, dtype=logits.dtype, device=logits.device)
    batches = gradient if gradient.ndim == 3 else gradient[None]
    columns = slice(0, logits.shape[-1])
    for part in _wide_rows(logits, active):
        batches[part.batch][part.places] = cpu_tile.softmax_gradient(
            *(part.z, targets[part.rows], columns, stats.rows(part.rows)),
            *(coefficients.rows(part.rows), temperature),
        ).to(gradient.dtype)
    if inplace:
        for batch, idle in zip(batches, ~active.view(batches.shape[:-1]), strict=True):
            batch.index_fill_(0, idle.nonzero().flatten(), 0)
    return gradient


class _WideRows(NamedTuple):
    """Some rows: their numbers, their places within one batch of [B, L, V], a wide copy of them."""

    rows: slice | Tensor
    batch: int
    places: slice | Tensor
    z: Tensor


def _wide_rows(logits: Tensor, active: Tensor | None = None) -> Iterator[_WideRows]:
    """The rows, or those that are active, in turn; one buffer serves all copies."""
    vocabulary = logits.shape[-1]
    height = max(1, TILE_ELEMENTS // vocabulary)
    scratch = logits.new_empty(height * vocabulary, dtype=stats_dtype(logits.dtype))
    batches = logits if logits.ndim == 3 else logits[None]
    for number, batch in enumerate(batches):
        first = number * len(batch)
        kept = None if active is None else active[first : first + len(batch)].nonzero().flatten()
        rows = len(batch) if kept is None else len(kept)
        for lo in range(0, rows, height):
            size = min(height, rows - lo)
            z = scratch[: size * vocabulary].view(size, vocabulary)
            if kept is None:
                z.copy_(batch[lo : lo + size])
                places = slice(lo, lo + size)
                yield _WideRows(slice(first + lo, first + lo + size), number, places, z)
            else:
                chosen = kept[lo : lo + size]
                z.copy_(batch[chosen])
                yield _WideRows(first + chosen, number, chosen, z)
