"""The head, and the tiles in which its logits are formed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.online_softmax import stats_dtype


class Tiling(NamedTuple):
    """Bounds of one tile of logits: at most `columns` wide and `elements` large."""

    columns: int
    elements: int

    def scratch(self, like: Tensor, rows: int, vocabulary: int, dtype: torch.dtype) -> Tensor:
        """Room for one tile. Fresh memory for each would cost more page faults than products."""
        size = min(max(self.elements, min(self.columns, vocabulary)), rows * vocabulary)
        return like.new_empty(size, dtype=dtype)

    def slices(self, vocabulary: int) -> Iterator[slice]:
        """Column slices of nearly equal width, a multiple of 64 where there are several."""
        pieces = -(-vocabulary // self.columns)
        width = vocabulary if pieces == 1 else -(-vocabulary // (64 * pieces)) * 64
        return (slice(lo, min(lo + width, vocabulary)) for lo in range(0, vocabulary, width))

    def blocks(self, rows: int, width: int) -> Iterator[slice]:
        """Row blocks that keep rows * width within `elements`; 64 rows or a multiple, or fewer."""
        height = max(1, self.elements // width)
        height -= height % 64 if height > 64 else 0
        return (slice(lo, min(lo + height, rows)) for lo in range(0, rows, height))


class Head(NamedTuple):
    """What turns hidden states into logits, and the dtype its products read their operands in.

    `softcap` is 0 for none. Products are never rounded below the statistics' dtype, neither in the
    forward nor in the backward, so both see the same logits.
    """

    weight: Tensor
    bias: Tensor | None
    temperature: float
    softcap: float
    operands: torch.dtype

    @property
    def wide(self) -> torch.dtype:
        """The dtype of logits, statistics and sums across tiles."""
        return stats_dtype(self.weight.dtype)

    def product(self, hidden: Tensor, weight: Tensor, scratch: Tensor) -> Tensor:
        """hidden [R, H] times a slice of the weight [C, H]: [R, C] in `wide`, inside `scratch`."""
        z = tile_of(scratch, len(hidden), len(weight))
        if hidden.dtype == z.dtype:
            return torch.mm(hidden, weight.T, out=z)
        return torch.mm(hidden, weight.T, out_dtype=z.dtype, out=z)


def tile_of(scratch: Tensor, rows: int, columns: int) -> Tensor:
    """[rows, columns], contiguous, at the beginning of `scratch`."""
    return scratch[: rows * columns].view(rows, columns)


def accumulate(total: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """total += a @ b, or = when `first`; products of 16-bit operands are summed in fp32."""
    beta = 0 if first else 1
    if a.dtype == total.dtype:
        torch.addmm(total, a, b, beta=beta, out=total)
    else:
        torch.addmm(total, a, b, out_dtype=total.dtype, beta=beta, out=total)
