"""Lay out each member behind its own copy of the prompt: the tests' oracle too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class UnsharedRows(NamedTuple):
    """S rows of L places, padded on the right.

    input_ids [S, L]; valid [S, L] bool; positions [A, S, L]; targets [N]; gather [N], flat index
    into S * L of the hidden state that predicts each target. Plain causal attention.
    """

    input_ids: Tensor
    valid: Tensor
    positions: Tensor
    targets: Tensor
    gather: Tensor


def unshared_rows(
    prefixes: Sequence[Tensor],
    suffixes: Sequence[Sequence[Tensor]],
    prefix_positions: Sequence[Tensor],
    *,
    pad_id: int = 0,
) -> UnsharedRows:
    """Lay out one row `[prefix | suffix]` per member, by group, then member."""
    members = [(b, s) for b, group in enumerate(suffixes) for s in group]
    length = max((len(prefixes[b]) + len(s) for b, s in members), default=0)
    axes = prefix_positions[0].shape[0] if prefix_positions else 1
    ids = torch.full((len(members), length), pad_id, dtype=torch.int64)
    valid = torch.zeros(len(members), length, dtype=torch.bool)
    positions = torch.zeros(axes, len(members), length, dtype=torch.int64)
    targets, gather = [], []
    for i, (b, suffix) in enumerate(members):
        p, t = len(prefixes[b]), len(suffix)
        ids[i, :p], ids[i, p : p + t] = prefixes[b], suffix
        valid[i, : p + t] = True
        positions[:, i, :p] = prefix_positions[b]
        positions[:, i, p : p + t] = prefix_positions[b].max() + 1 + torch.arange(t)
        targets.append(suffix)
        gather.append(i * length + p - 1 + torch.arange(t))
    none = torch.zeros(0, dtype=torch.int64)
    return UnsharedRows(
        ids,
        valid,
        positions,
        torch.cat(targets) if targets else none,
        torch.cat(gather) if gather else none,
    )
