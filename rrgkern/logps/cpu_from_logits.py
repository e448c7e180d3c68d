"""The CPU kernel: a few rows at a time in fp32, so that no wide copy of [N, V] is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps import tile
from rrgkern.logps.inputs import check_targets
from rrgkern.logps.online_softmax import RowStats, finish, stats_dtype

# 4 MiB of fp32, about the cache of a core and its share of the last level.
TILE_ELEMENTS = 1 << 20


def forward(
    logits: Tensor, targets: Tensor, temperature: float, entropy: bool, keep: Tensor | None = None
) -> RowStats:
    """logits [N, V] or [B, L, V], targets [N] -> statistics of each row.

    Rows outside `keep` [N] are not read; their statistics are 0.
    """
    vocabulary = logits.shape[-1]
    check_targets(targets, vocabulary, keep)
    columns = slice(0, vocabulary)
    dtype = stats_dtype(logits.dtype)
    sizes = (len(targets), len(targets) if entropy else 0, len(targets), len(targets))
    stats = RowStats(*(logits.new_zeros(size, dtype=dtype) for size in sizes))
    for part in _wide_tiles(logits, keep):
        target_logit = part.z.new_empty(len(part.z))
        tile.take_target(part.z, targets[part.rows], columns, target_logit)
        others = tile.sweep(part.z, temperature, entropy)
        for whole, piece in zip(
            stats, finish(others, target_logit, temperature, entropy), strict=True
        ):
            if len(piece):
                whole[part.rows] = piece
    return stats


def backward(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    stats: RowStats,
    temperature: float,
    *,
    inplace: bool = False,
) -> Tensor:
    """Gradient of the logits; rows whose coefficients are both 0 are not read.

    Contiguous and new; or, `inplace`, the logits themselves, overwritten.
    """
    active = coef != 0 if coef_entropy is None else (coef != 0) | (coef_entropy != 0)
    if inplace:
        gradient = logits
    else:
        gradient = torch.zeros(logits.shape, dtype=logits.dtype, device=logits.device)
    batches = gradient if gradient.ndim == 3 else gradient[None]
    for part in _wide_tiles(logits, active):
        batches[part.batch][part.places] = tile.gradient(
            part.z,
            slice(0, logits.shape[-1]),
            coef[part.rows],
            None if coef_entropy is None else coef_entropy[part.rows],
            targets[part.rows],
            RowStats(*(values[part.rows] if len(values) else values for values in stats)),
            temperature,
        ).to(gradient.dtype)
    if inplace:
        for batch, idle in zip(batches, ~active.view(batches.shape[:-1]), strict=True):
            batch.index_fill_(0, idle.nonzero().flatten(), 0)
    return gradient


class _Tile(NamedTuple):
    """Some rows: their numbers, their places within one batch of [B, L, V], a wide copy of them."""

    rows: slice | Tensor
    batch: int
    places: slice | Tensor
    z: Tensor


def _wide_tiles(logits: Tensor, active: Tensor | None = None) -> Iterator[_Tile]:
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
                yield _Tile(slice(first + lo, first + lo + size), number, places, z)
            else:
                chosen = kept[lo : lo + size]
                z.copy_(batch[chosen])
                yield _Tile(first + chosen, number, chosen, z)
