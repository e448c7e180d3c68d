"""Reports of like length together, and no more padded tokens in a batch than a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rrgclinical.chexbert.pieces import Pieces


def length_sorted(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices into `lengths`, longest first, cut so that rows x longest <= `budget`.

    One that is longer than the budget is a batch of its own. Equal lengths keep their order.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        rows = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows


def pad(pieces: Sequence[Pieces], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and attention mask of a batch, [R, L] int64 each; the mask is 0 at padding."""
    longest = max(len(one.ids) for one in pieces)
    ids = [one.ids + [pad_id] * (longest - len(one.ids)) for one in pieces]
    mask = [[1] * len(one.ids) + [0] * (longest - len(one.ids)) for one in pieces]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
