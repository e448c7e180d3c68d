"""The CPU kernel: a few rows at a time in fp32, so that no wide copy of [N, V] is made."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rrgkern.token_logps import tile
from rrgkern.token_logps.row_stats import RowStats, finish, stats_dtype
from rrgkern.token_logps.targets import check_targets

# 4 MiB of fp32, about the cache of a core and its share of the last level.
TILE_ELEMENTS = 1 << 20


def forward(logits: Tensor, targets: Tensor, temperature: float, entropy: bool) -> RowStats:
    """logits [N, V] or [B, L, V], targets [N] -> statistics of each row."""
    vocabulary = logits.shape[-1]
    check_targets(targets, vocabulary)
    columns = slice(0, vocabulary)
    done = [RowStats(*logits.new_empty((4, 0), dtype=stats_dtype(logits.dtype)))]
    for rows, z in _wide_tiles(logits):
        target_logit = z.new_empty(len(z))
        tile.take_target(z, targets[rows], columns, target_logit)
        others = tile.sweep(z, temperature, entropy)
        done.append(finish(others, target_logit, temperature, entropy))
    return RowStats(*(torch.cat(parts) for parts in zip(*done, strict=True)))


def backward(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    stats: RowStats,
    temperature: float,
) -> Tensor:
    """Gradient of the logits, contiguous; rows whose coefficients are both 0 are not read."""
    gradient = torch.zeros(logits.shape, dtype=logits.dtype, device=logits.device)
    flat = gradient.view(-1, logits.shape[-1])
    active = coef != 0 if coef_entropy is None else (coef != 0) | (coef_entropy != 0)
    for rows, z in _wide_tiles(logits, active):
        flat[rows] = tile.gradient(
            z,
            slice(0, logits.shape[-1]),
            coef[rows],
            None if coef_entropy is None else coef_entropy[rows],
            targets[rows],
            RowStats(*(part[rows] if len(part) else part for part in stats)),
            temperature,
        ).to(flat.dtype)
    return gradient


def _wide_tiles(
    logits: Tensor, active: Tensor | None = None
) -> Iterator[tuple[slice | Tensor, Tensor]]:
    """(which rows, a wide copy of them) in turn; one buffer serves all."""
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
                yield slice(first + lo, first + lo + size), z
            else:
                z.copy_(batch[kept[lo : lo + size]])
                yield first + kept[lo : lo + size], z
