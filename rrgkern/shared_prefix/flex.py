"""FlexAttention over packed groups, with a block mask made without any [L, L] mask."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch._dynamo import config as dynamo
from torch.fx.experimental import _config as shapes
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from rrgkern.checks import check_tensors
from rrgkern.shared_prefix.batch import SharedPrefixBatch


@functools.cache
def compiled() -> Callable[..., Tensor]:
    """Compile FlexAttention; uncompiled it computes and keeps every score of a row.

    `fullgraph` for that not to happen in silence, should PyTorch give up compiling.
    """
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


def shared_prefix_block_mask(batch: SharedPrefixBatch, *, block_size: int = 128) -> BlockMask:
    """Build the rule of `batch.mask_mod()` by blocks of `block_size` places, for every layer.

    A token sees at most two runs of keys: its prefix, and its own segment up to itself. Which
    blocks those touch and which they cover is read off their ends, R L² / block_size comparisons,
    where `create_block_mask` asks for each of the R L² pairs.

    Raises:
        ValueError: rows of no places.
    """
    rows, length = batch.group.shape
    if rows * length == 0:
        raise ValueError("the batch has no places: FlexAttention needs at least one")
    device = batch.group.device
    place = torch.arange(length, device=device)
    padding = batch.group < 0
    used = (~padding).sum(1, keepdim=True)
    # [R, L]: where a token's own segment begins, and the ends of its prefix where that is another.
    own = torch.where(padding, used, place - batch.depth)
    group = batch.group.clamp(min=0)
    begin = batch.start_of_group[group] % length
    apart = batch.member >= 0
    end = torch.where(apart, begin + batch.prefix_lengths[group], begin)

    first = torch.arange(0, length, block_size, device=device)
    behind = first + block_size
    begin, end, own = (t[:, :, None] for t in (begin, end, own))
    last = place[:, None]
    touched = (begin < end) & (begin < behind) & (end > first) | (own < behind) & (last >= first)
    # A member right behind its prefix sees both as one run.
    start = torch.where((begin < end) & (end == own), begin, own)
    covered = (begin <= first) & (end >= behind) | (start <= first) & (last >= behind - 1)

    blocks = len(first)
    missing = blocks * block_size - length
    touched, covered = (
        torch.nn.functional.pad(t, (0, 0, 0, missing)).view(rows, blocks, block_size, blocks)
        for t in (touched, covered)
    )
    full = covered.all(2)
    partial = touched.any(2) & ~full
    return BlockMask.from_kv_blocks(
        *_ordered(partial),
        *_ordered(full),
        BLOCK_SIZE=block_size,
        mask_mod=batch.mask_mod(),
        seq_lengths=(length, length),
    )


def shared_prefix_flex_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, *, scale: float | None = None
) -> Tensor:
    """Attend as `shared_prefix_attention` does, by FlexAttention, for batches of any shape.

    Args:
        query: [R, heads, L, D]; key, value: [R, key heads, L, D], where the number of key heads
            divides that of heads. Not fp64 on a GPU.
        mask: of the batch, on the same device.
        scale: of the scores; 1 / sqrt(D) by default.

    Returns:
        [R, heads, L, D]. Differentiable on a GPU only (PyTorch has no other backward). On padding
        the values are finite and mean nothing.
    """
    check_tensors(query=query, key=key, value=value)
    grouped = query.shape[1] != key.shape[1]
    # Else a length of as many blocks as there are heads would be taken for a constant as they are.
    # One row or several, one block or several, with gradients or without are eight variants of one
    # dtype, after which PyTorch refuses to compile another.
    with shapes.patch(use_duck_shape=False), dynamo.patch(recompile_limit=64):  # type: ignore[attr-defined]
        return compiled()(query, key, value, block_mask=mask, scale=scale, enable_gqa=grouped)


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Count the blocks of [R, Q, K] in each row; list their indices first."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[:, None], order.to(torch.int32)[:, None]
