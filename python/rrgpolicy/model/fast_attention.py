"""Attention over a packed row that computes the visible blocks alone."""

from __future__ import annotations

from torch import Tensor

from rrgkern import (
    SharedPrefixBatch,
    attention_layout,
    shared_prefix_attention,
    shared_prefix_block_mask,
    shared_prefix_flex_attention,
)
from rrgpolicy.model.attention import Attend
from rrgpolicy.model.backbone import Backbone

FLEX_BLOCK = 128


def fast_attention(
    backbone: Backbone, packed: SharedPrefixBatch, batch: SharedPrefixBatch
) -> Attend:
    """Attend as `batch`, which is `packed` on its device, by FlexAttention or blocks of SDPA."""
    if backbone.shared_attention == "flex":
        mask = shared_prefix_block_mask(batch, block_size=FLEX_BLOCK)

        def flex(_: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            return shared_prefix_flex_attention(query, key, value, mask, scale=scale)

        return flex
    layout = attention_layout(packed).to(backbone.device)

    def blocks(_: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        return shared_prefix_attention(query, key, value, layout, scale=scale)

    return blocks
