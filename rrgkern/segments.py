"""Map tokens to their sequences and sum over them."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import values_may_be_read


def sequence_of_token(offsets: Tensor, n_tokens: int) -> Tensor:
    """Find the sequence of each token, [N] int64, from `offsets` [S+1]. Does not synchronise.

    Raises:
        ValueError: on CPU, or with RRGKERN_CHECK=1, offsets that end elsewhere than at N.
    """
    if values_may_be_read(offsets) and int(offsets[-1] - offsets[0]) != n_tokens:
        raise ValueError(
            f"offsets runs from {int(offsets[0])} to {int(offsets[-1])}, and there are {n_tokens} "
            "tokens; wanted 0 to the number of tokens"
        )
    sequences = torch.arange(offsets.numel() - 1, device=offsets.device)
    return torch.repeat_interleave(sequences, offsets.diff(), output_size=n_tokens)


def sum_per_sequence(values: Tensor, sequence: Tensor, n_sequences: int) -> Tensor:
    """Sum `values` [N] over the tokens of each sequence, in order: [S] fp64."""
    sums = torch.zeros(n_sequences, dtype=torch.float64, device=values.device)
    return sums.index_add(0, sequence, values.double())
