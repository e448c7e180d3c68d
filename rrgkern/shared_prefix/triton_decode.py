"""Attend in a decoding step: a program a prompt, key head and tile of members."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.shared_prefix.reference import DecodeStep, decode_reference

# Lines of a tile (members x query heads of a key head) times the width of a value: its sums, in
# fp32, are what fills the registers. Turns of the loop whose loads are under way at once.
MOST_LINES, MOST_SUMS, STAGES = 128, 64 * 128, 3
# Bytes of keys that one turn of the loop reads; as many of values.
BYTES_A_TURN = 8 * 1024
SIZES = ["mask_stride", "width", "length", "room"]


@triton.jit
def _capped(scores, scale, softcap):
    """Scale scores and cap them."""
    scores *= scale
    if softcap is not None:
        # tanh by exp: of -2 |x|, which cannot overflow
        ratio = scores / softcap
        small = tl.exp(-2.0 * tl.abs(ratio))
        size = softcap * (1.0 - small) / (1.0 + small)
        scores = tl.where(ratio < 0, -size, size)
    return scores


@triton.jit
def _added(
    query, keys_ptr, values_ptr, at, inside, lines, mask_ptr, sums, scale, softcap,
    D: tl.constexpr, E: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Add one block of keys and values to (highest, total, out) of the `lines` that see them."""
    highest, total, out = sums
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    keys = tl.load(keys_ptr + at[:, None] * D + d, inside[:, None] & (d < D), other=0.0)
    scores = _capped(tl.dot(query, tl.trans(keys), input_precision="ieee"), scale, softcap)
    if mask_ptr is not None:
        mask = tl.load(mask_ptr + at, inside, other=0)
        if mask_ptr.dtype.element_ty == tl.int1:
            inside = inside & (mask != 0)
        else:
            scores += mask.to(tl.float32)
    scores = tl.where(lines[:, None] & inside, scores, float("-inf"))
    above = tl.maximum(highest, tl.max(scores, 1))
    weights = tl.exp(scores - above[:, None])
    decay = tl.exp(highest - above)
    values = tl.load(values_ptr + at[:, None] * E + e, inside[:, None] & (e < E), other=0.0)
    out = out * decay[:, None]
    out += tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return above, total * decay + tl.sum(weights, 1), out


@triton.jit(do_not_specialize=SIZES)
def shared_prefix_decode_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    prompt_keys_ptr,
    prompt_values_ptr,
    own_keys_ptr,
    own_values_ptr,
    place_ptr,
    members_ptr,
    mask_ptr,
    sinks_ptr,
    out_ptr,
    scale,
    softcap,
    window,
    query_stride,
    key_stride,
    value_stride,
    mask_stride,
    width,
    length,
    room,
    KEY_HEADS: tl.constexpr,
    REPEATS: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    MEMBERS: tl.constexpr,
    LINES: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Sum over new token, prompt and room; a line is a member's query head."""
    prompt = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    first_member = tl.program_id(2) * MEMBERS
    place = tl.load(place_ptr)
    line = tl.arange(0, LINES)
    member = first_member + line // REPEATS
    lines = (line < MEMBERS * REPEATS) & (member < width)
    row = tl.program_id(0) * width + member
    one_row = prompt * width
    if members_ptr is not None:
        row = tl.load(members_ptr + row, lines, other=-1).to(tl.int32)
        one_row = tl.load(members_ptr + one_row)
        lines = lines & (row >= 0)
        row = tl.where(lines, row, 0)
    head = key_head * REPEATS + line % REPEATS
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    of_key, of_value = lines[:, None] & (d < D), lines[:, None] & (e < E)

    # 1. The new token, from registers: what is written below is not read again.
    stored = (row.to(tl.int64) * KEY_HEADS + key_head) * room + place
    writes = (line % REPEATS == 0)[:, None]
    query_at = query_ptr + (row.to(tl.int64) * query_stride + head * D)[:, None] + d
    query = tl.load(query_at, of_key, other=0.0)
    key = tl.load(
        key_ptr + (row.to(tl.int64) * key_stride + key_head * D)[:, None] + d, of_key, other=0.0
    )
    tl.store(own_keys_ptr + (stored * D)[:, None] + d, key, of_key & writes)
    highest = _capped(tl.sum(query.to(tl.float32) * key.to(tl.float32), 1), scale, softcap)
    value_at = value_ptr + (row.to(tl.int64) * value_stride + key_head * E)[:, None] + e
    value = tl.load(value_at, of_value, other=0.0)
    tl.store(own_values_ptr + (stored * E)[:, None] + e, value, of_value & writes)
    total = tl.full([LINES], 1.0, tl.float32)
    out = value.to(tl.float32)
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + head, lines, other=0.0).to(tl.float32)
        above = tl.maximum(highest, sink)
        own = tl.exp(highest - above)
        total = own + tl.exp(sink - above)
        out = out * own[:, None]
        highest = above
    sums = highest, total, out

    # 2. The prompt, once for all lines.
    columns = tl.arange(0, BLOCK)
    first = place * 0
    own_first = first
    if window is not None:
        first = tl.maximum(length + place + 1 - window, 0)
        own_first = tl.maximum(place + 1 - window, 0)
    at_prompt = (prompt * KEY_HEADS + key_head) * length
    mask_at = mask_ptr
    if mask_ptr is not None:
        mask_at = mask_ptr + one_row * mask_stride
    for start in tl.range(first, length, BLOCK):
        at = start + columns
        sums = _added(
            query, prompt_keys_ptr + at_prompt * D, prompt_values_ptr + at_prompt * E,
            at, at < length, lines, mask_at, sums, scale, softcap, D, E, BLOCK_D, BLOCK_E,
        )  # fmt: skip

    # 3. The places before this one of each member, seen by its own lines.
    turns = tl.cdiv(place - own_first, BLOCK)
    for turn in tl.range(0, tl.minimum(MEMBERS, width - first_member) * turns):
        reader = first_member + turn // turns
        its_row = prompt * width + reader
        if members_ptr is not None:
            its_row = tl.maximum(tl.load(members_ptr + its_row), 0)
        at = own_first + (turn % turns) * BLOCK + columns
        at_own = (its_row * KEY_HEADS + key_head) * room
        if mask_ptr is not None:
            mask_at = mask_ptr + its_row * mask_stride + length
        sums = _added(
            query, own_keys_ptr + at_own * D, own_values_ptr + at_own * E,
            at, at < place, lines & (member == reader), mask_at, sums, scale, softcap,
            D, E, BLOCK_D, BLOCK_E,
        )  # fmt: skip

    highest, total, out = sums
    out_at = out_ptr + ((row.to(tl.int64) * KEY_HEADS * REPEATS + head) * E)[:, None] + e
    tl.store(out_at, out / total[:, None], of_value)


def launch(*inputs: Any) -> Tensor:
    """Serve `rrgkern::shared_prefix_decode`; fp64, and GPUs before sm_80, by the reference."""
    step = DecodeStep(*inputs)
    narrow = step.own_keys.element_size() == 2
    is_old = narrow and step.query.is_cuda and torch.cuda.get_device_capability() < (8, 0)
    if is_old or step.own_keys.dtype == torch.float64:
        return decode_reference(step)
    rows, heads, width = step.query.shape
    prompts, key_heads, length, depth = step.prompt_values.shape
    members = rows // prompts if step.members is None else step.members.shape[1]
    repeats = heads // key_heads
    block_d, block_e = (max(triton.next_power_of_2(n), 16) for n in (width, depth))
    # products outside of tensor cores, of fp32, hold a whole tile in registers: one member each
    most = max(min(MOST_LINES, MOST_SUMS // max(block_d, block_e)) // repeats, 1) if narrow else 1
    a_tile = min(members, most)
    lines = max(triton.next_power_of_2(a_tile * repeats), 16)
    block = min(max(BYTES_A_TURN // (2 * block_d), 16), 64) if narrow else 16
    query, key, value = (
        x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()
        for x in (step.query.to(step.own_keys.dtype), step.key, step.value)
    )
    mask = step.mask if step.mask is None or step.mask.stride(1) == 1 else step.mask.contiguous()
    out = torch.empty(rows, heads, depth, dtype=step.query.dtype, device=query.device)
    shared_prefix_decode_kernel[(prompts, key_heads, triton.cdiv(members, a_tile))](
        *(query, key, value, step.prompt_keys.contiguous(), step.prompt_values.contiguous()),
        *(step.own_keys, step.own_values, step.place, step.members, mask, step.sinks, out),
        *(step.scale, step.softcap, step.window),
        *(query.stride(0), key.stride(0), value.stride(0)),
        *(0 if mask is None else mask.stride(0), members, length, step.own_keys.shape[2]),
        **{"KEY_HEADS": key_heads, "REPEATS": repeats, "D": width, "E": depth},
        **{"MEMBERS": a_tile, "LINES": lines},
        **{"BLOCK": block, "BLOCK_D": block_d, "BLOCK_E": block_e},
        num_warps=8 if lines > 64 else 4,
        num_stages=min(STAGES, 3 if max(block_d, block_e) < 256 else 2),  # as registers allow
    )
    return out
