"""Map tokens to their sequences and sum over them."""

from __future__ import annotations

import torch
from torch import Tensor


def sequence_of_token(offsets: Tensor, n_tokens: int) -> Tensor:
    """Find the sequence of each token, [N] int64, from `offsets` [S+1]. Does not synchronise."""
    sequences = torch.arange(offsets.numel() - 1, device=offsets.device)
    return torch.repeat_interleave(sequences, offsets.diff(), output_size=n_tokens)


def sum_per_sequence(values: Tensor, sequence: Tensor, n_sequences: int) -> Tensor:
    """Sum `values` [N] over the tokens of each sequence, in order: [S] fp64."""
    sums = torch.zeros(n_sequences, dtype=torch.float64, device=values.device)
    return sums.index_add(0, sequence, values.double())
