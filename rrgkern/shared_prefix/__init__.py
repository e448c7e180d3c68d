"""Packing of groups that share a prompt: tokens, positions, masks, attention."""

from __future__ import annotations

from rrgkern.shared_prefix.api import decode_unchecked, pack_shared_prefix, shared_prefix_decode
from rrgkern.shared_prefix.attention import (
    AttentionLayout,
    attention_layout,
    gather_rows,
    shared_prefix_attention,
)
from rrgkern.shared_prefix.batch import SharedPrefixBatch
from rrgkern.shared_prefix.flex import shared_prefix_block_mask, shared_prefix_flex_attention
from rrgkern.shared_prefix.reference import DecodeStep

__all__ = [
    "AttentionLayout",
    "DecodeStep",
    "SharedPrefixBatch",
    "attention_layout",
    "decode_unchecked",
    "gather_rows",
    "pack_shared_prefix",
    "shared_prefix_attention",
    "shared_prefix_block_mask",
    "shared_prefix_decode",
    "shared_prefix_flex_attention",
]
