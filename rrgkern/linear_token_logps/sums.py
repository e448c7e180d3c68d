"""What is known of each row between two tiles of its logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.token_logps.row_stats import Others, RowStats, finish


class Sums(NamedTuple):
    """Sums over the columns seen so far, the target's left out, and the target's logit. [N] each.

    `others` is fp64: next to the 1 of a leading column, fp32 would drop a tail of many small ones.
    """

    others: Others
    target_logit: Tensor

    @staticmethod
    def empty(like: Tensor, rows: int, dtype: torch.dtype) -> Sums:
        """No column seen; the target's logit is NaN until its tile comes."""
        others = Others(*like.new_zeros((3, rows), dtype=torch.float64))
        others.top.fill_(-torch.inf)
        return Sums(others, like.new_full((rows,), torch.nan, dtype=dtype))

    def rows(self, block: slice) -> Sums:
        """Views of a block of rows, to be updated in place."""
        return Sums(Others(*(part[block] for part in self.others)), self.target_logit[block])

    def close(self, temperature: float, entropy: bool) -> RowStats:
        """Log-probability, entropy and what the backward needs, when every column was seen."""
        return finish(self.others, self.target_logit, temperature, entropy)


def rows_of(stats: RowStats, block: slice | Tensor) -> RowStats:
    """Statistics of some rows; a part that was not asked for stays empty."""
    return RowStats(*(part[block] if len(part) else part for part in stats))
