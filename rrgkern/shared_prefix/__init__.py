"""Packing of groups that share a prompt: tokens, positions, masks and what to score."""

from __future__ import annotations

from rrgkern.shared_prefix.api import pack_shared_prefix
from rrgkern.shared_prefix.attention import (
    AttentionLayout,
    attention_layout,
    shared_prefix_attention,
)
from rrgkern.shared_prefix.batch import SharedPrefixBatch
from rrgkern.shared_prefix.flex import shared_prefix_block_mask, shared_prefix_flex_attention
from rrgkern.shared_prefix.gather import gather_rows

__all__ = [
    "AttentionLayout",
    "SharedPrefixBatch",
    "attention_layout",
    "gather_rows",
    "pack_shared_prefix",
    "shared_prefix_attention",
    "shared_prefix_block_mask",
    "shared_prefix_flex_attention",
]
