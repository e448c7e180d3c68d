"""A small attention layer over packed rows equals the unshared rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.unshared import unshared_rows
from rrgkern import shared_prefix
from tests.rrgkern.device import DEVICE

VOCABULARY, WIDTH, HEADS = 50, 16, 2
SIZES = [(5, [3, 4, 2]), (3, [6, 1]), (4, [2, 2])]
BUDGET = 23  # the first and the third group share a row, and a row has padding


def groups() -> tuple[list[Tensor], list[list[Tensor]], list[Tensor]]:
    generator = torch.Generator().manual_seed(5)

    def tokens(n: int) -> Tensor:
        return torch.randint(0, VOCABULARY, (n,), generator=generator)

    prefixes = [tokens(p) for p, _ in SIZES]
    suffixes = [[tokens(t) for t in members] for _, members in SIZES]
    # Positions as images make them: two axes that do not count evenly.
    positions = [torch.stack([torch.arange(p), torch.arange(p) // 2]) for p, _ in SIZES]
    return prefixes, suffixes, positions


def layer(ids: Tensor, positions: Tensor, attend: Callable[..., Tensor]) -> Tensor:
    """[rows * L, WIDTH] in fp64: embedding with positions, then attention."""
    generator = torch.Generator().manual_seed(6)

    def weight(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE)

    tokens, turn = weight(VOCABULARY, WIDTH), weight(2, WIDTH)
    states = tokens[ids] + (positions.double().permute(1, 2, 0) @ turn).sin()
    query, key, value = (
        (states @ weight(WIDTH, WIDTH)).unflatten(-1, (HEADS, -1)).transpose(1, 2) for _ in range(3)
    )
    return attend(query, key, value).transpose(1, 2).flatten(2).flatten(0, 1)


def truth() -> Tensor:
    rows = unshared_rows(*groups())
    out = layer(
        rows.input_ids.to(DEVICE),
        rows.positions.to(DEVICE),
        lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
    )
    return out[rows.gather.to(DEVICE)]


def packed() -> shared_prefix.SharedPrefixBatch:
    prefixes, suffixes, _ = groups()
    batch = shared_prefix.pack_shared_prefix(prefixes, suffixes, token_budget=BUDGET).to(DEVICE)
    assert batch.row_of_group.tolist() == [0, 1, 0]
    return batch


def dense(batch: shared_prefix.SharedPrefixBatch, positions: Tensor | None = None) -> Tensor:
    mask = batch.attention_mask(torch.float64)
    out = layer(
        batch.input_ids,
        batch.position_ids(groups()[2]) if positions is None else positions,
        lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=mask),
    )
    return out[batch.gather]


def blocks(batch: shared_prefix.SharedPrefixBatch, layout: shared_prefix.AttentionLayout) -> Tensor:
    out = layer(
        batch.input_ids,
        batch.position_ids(groups()[2]),
        lambda *qkv: shared_prefix.shared_prefix_attention(*qkv, layout),
    )
    return out[batch.gather]


def test_packed_rows_equal_unshared_rows() -> None:
    batch = packed()
    torch.testing.assert_close(dense(batch), truth())
    torch.testing.assert_close(blocks(batch, shared_prefix.attention_layout(batch)), truth())
