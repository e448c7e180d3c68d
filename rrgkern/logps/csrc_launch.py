"""Serve CPUs with csrc/logps: rows of logits, and tiles as `cpu_tile` does.

A row of logits is read once and its gradient written once. Bias and cap of a tile are PyTorch's; it
is read once for the sums, and overwritten by its exponentials or its gradient. Rows whose tile has
the whole vocabulary are summed and closed in one call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.logps.cpu_tile import cap, head_of
from rrgkern.logps.head import Tile, tile_of
from rrgkern.logps.inputs import FromLogits, FromLogitsBackward, check_targets
from rrgkern.logps.online_softmax import Coefficients, RowSums, SoftmaxStats, stats_dtype
from rrgkern.ops import pack

__all__ = ["add_to_sums", "exponentials", "head_of", "tile_gradient", "whole_rows"]

# Stands for a tensor that is absent.
NOTHING = torch.empty(0, device="cpu")


def token_logps_fwd(*inputs: Any) -> SoftmaxStats:
    """Serve `rrgkern::token_logps_fwd`."""
    logits, targets, temperature, entropy, keep = FromLogits(*inputs)
    stats = SoftmaxStats.empty(logits, targets.numel(), stats_dtype(logits.dtype), entropy)
    flags = NOTHING if keep is None or not keep.numel() else keep.contiguous()
    arguments = (logits, targets.contiguous(), flags, temperature, *stats)
    if csrc.load().token_logps_cpu(*arguments, torch.get_num_threads()) >= 0:
        check_targets(targets, logits.shape[-1], keep)
    return stats


def token_logps_bwd(*inputs: Any) -> Tensor:
    """Serve `rrgkern::token_logps_bwd`."""
    x = pack(FromLogitsBackward, inputs)
    gradient = x.logits.new_empty(x.logits.shape)
    _write_gradient(x, gradient)
    return gradient


def token_logps_bwd_(*inputs: Any) -> None:
    """Serve `rrgkern::token_logps_bwd_`."""
    x = pack(FromLogitsBackward, inputs)
    _write_gradient(x, x.logits)


def _write_gradient(x: FromLogitsBackward, gradient: Tensor) -> None:
    coef, bonus = x.coefficients
    csrc.load().token_logps_bwd_cpu(
        coef.contiguous(),
        NOTHING if bonus is None else bonus.contiguous(),
        x.logits,
        x.targets.contiguous(),
        *[part.contiguous() for part in x.stats],
        *(x.temperature, gradient, torch.get_num_threads()),
    )


def add_to_sums(tile: Tile, sums: RowSums, entropy: bool) -> None:
    """Add the tile to `sums`, see `cpu_tile.add_to_sums`."""
    tile = _capped(tile)
    csrc.load().add_tile_cpu(*_place(tile), entropy, *_parts(sums), torch.get_num_threads())


def whole_rows(tile: Tile, stats: SoftmaxStats) -> bool:
    """Write the statistics of rows with all columns; False where a target is wrong."""
    tile = _capped(tile)
    place = (tile.z, tile.targets.contiguous(), NOTHING, tile.head.temperature)
    return bool(csrc.load().token_logps_cpu(*place, *stats, torch.get_num_threads()) < 0)


def exponentials(tile: Tile, sums: RowSums, entropy: bool) -> tuple[Tensor, Tensor]:
    """Turn the tile into its exponentials, see `cpu_tile.exponentials`."""
    cap(tile)
    slope = _slope(tile)
    decay = tile.z.new_empty(len(tile.z))
    csrc.load().exponentials_cpu(
        *_place(tile), entropy, *_parts(sums), decay, torch.get_num_threads()
    )
    return tile.z if slope is None else tile.z.mul_(slope), decay


def tile_gradient(tile: Tile, stats: SoftmaxStats, coefficients: Coefficients) -> Tensor:
    """Turn the tile into its gradient, see `cpu_tile.tile_gradient`."""
    cap(tile)
    slope = _slope(tile)
    coef, bonus = coefficients
    csrc.load().tile_gradient_cpu(
        *(*_place(tile), coef.contiguous(), NOTHING if bonus is None else bonus.contiguous()),
        *(*[part.contiguous() for part in stats], torch.get_num_threads()),
    )
    return tile.z if slope is None else tile.z.mul_(slope)


def _capped(tile: Tile) -> Tile:
    """Add bias and cap, in `spare` where the products are wanted again."""
    if tile.spare is not None and (tile.head.bias is not None or tile.head.softcap):
        tile = tile._replace(z=tile_of(tile.spare, *tile.z.shape).copy_(tile.z))
    cap(tile)
    return tile


def _slope(tile: Tile) -> Tensor | None:
    softcap = tile.head.softcap
    return 1 - (tile.z / softcap) ** 2 if softcap else None


def _place(tile: Tile) -> tuple[Tensor, Tensor, int, float]:
    return tile.z, tile.targets.contiguous(), tile.columns.start, tile.head.temperature


def _parts(sums: RowSums) -> tuple[Tensor, ...]:
    return *sums.others, sums.target_logit
