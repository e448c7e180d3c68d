"""How large the tiles are, and who works on them between the products."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from rrgkern.logps.head import Head, Tiles
from rrgkern.logps.online_softmax import RowSums, SoftmaxStats


class RowSteps(Protocol):
    """Steps on sums over hidden states, of `cpu_kernels` and `triton_kernels`."""

    def rescale(self, total: Tensor, decay: Tensor) -> None: ...

    def direction(
        self,
        total: Tensor,
        sums: RowSums,
        stats: SoftmaxStats,
        targets: Tensor,
        head: Head,
        coef: Tensor,
        out: Tensor,
    ) -> None: ...


class Plan(NamedTuple):
    """`held` bounds the logits that the gradient in the forward keeps, in numbers."""

    tiles: Tiles
    held: int
    rows: RowSteps

    def held_rows(self, rows: int, vocabulary: int) -> int:
        """Rows whose logits are kept at a time: a multiple of 64, or fewer than 64."""
        height = max(1, self.held // vocabulary)
        height -= height % 64 if height > 64 else 0
        return max(1, min(height, rows))
