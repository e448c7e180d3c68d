"""Time a group behind one prompt, trained and decoded, against one row per member."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import Agree, Bench
from bench.unshared import unshared_rows
from rrgkern import (
    AttentionLayout,
    DecodeStep,
    SharedPrefixBatch,
    attention_layout,
    pack_shared_prefix,
    shared_prefix_attention,
    shared_prefix_block_mask,
    shared_prefix_decode,
    shared_prefix_flex_attention,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
KEY_HEADS = 2

# groups, members, prompt tokens, report tokens, heads, width of a head
SHAPES = {
    "cuda": [(8, 10, 1600, 150, 16, 128)],
    "cpu": [(2, 10, 130, 60, 4, 32), (1, 10, 800, 150, 4, 32)],
}[DEVICE]

bench = Bench("shared_prefix", baseline="unshared")
decode = Bench("shared_prefix", baseline="unshared")


class Inputs:
    """A decoder layer's weights, and the tokens of the same groups in both layouts."""

    def __init__(self, seed: int, shape: tuple[int, ...]) -> None:
        groups, members, prompt, report, heads, head = shape
        generator = torch.Generator().manual_seed(seed)
        width = heads * head

        def weight(*size: int) -> Tensor:
            values = torch.randn(*size, generator=generator) / size[-1] ** 0.5
            return values.to(DEVICE, DTYPE).requires_grad_()

        self.heads = heads
        self.query, self.out = weight(width, width), weight(width, width)
        self.key, self.value = weight(KEY_HEADS * head, width), weight(KEY_HEADS * head, width)
        self.up, self.down = weight(4 * width, width), weight(width, 4 * width)
        self.embedding = weight(1000, width)
        # Reports between half and all of the longest.
        lengths = torch.randint(report // 2, report + 1, (groups, members), generator=generator)
        prefixes = [torch.randint(0, 1000, (prompt,), generator=generator) for _ in range(groups)]
        suffixes = [
            [torch.randint(0, 1000, (n,), generator=generator) for n in row]
            for row in lengths.tolist()
        ]
        self.packed: SharedPrefixBatch = pack_shared_prefix(prefixes, suffixes).to(DEVICE)
        self.layout: AttentionLayout = attention_layout(self.packed)
        self.blocks = shared_prefix_block_mask(self.packed)
        rows = unshared_rows(prefixes, suffixes, [torch.arange(prompt)[None]] * groups)
        self.plain_ids, self.plain_gather = rows.input_ids.to(DEVICE), rows.gather.to(DEVICE)

    def parameters(self) -> list[Tensor]:
        return [self.query, self.key, self.value, self.out, self.up, self.down]


def layer(x: Inputs, ids: Tensor, attend, gather: Tensor) -> list[Tensor]:
    """Gradients of one decoder layer's scored states."""
    states = F.embedding(ids, x.embedding.detach())
    query, key, value = (
        F.linear(states, w).unflatten(-1, (n, -1)).transpose(1, 2)
        for w, n in ((x.query, x.heads), (x.key, KEY_HEADS), (x.value, KEY_HEADS))
    )
    states = states + F.linear(attend(query, key, value).transpose(1, 2).flatten(2), x.out)
    states = states + F.linear(F.silu(F.linear(states, x.up)), x.down)
    scored = states.flatten(0, 1).index_select(0, gather)
    return list(torch.autograd.grad(scored.float().square().sum(), x.parameters()))


@bench.provider("unshared")
def unshared(mask: Tensor, x: Inputs) -> list[Tensor]:
    """One row per member with its own copy of the prompt; plain causal attention."""

    def attend(*qkv: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)

    return layer(x, x.plain_ids, attend, x.plain_gather)


@bench.provider("dense mask")
def dense(mask: Tensor, x: Inputs) -> list[Tensor]:
    def attend(*qkv: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*qkv, attn_mask=mask, enable_gqa=True)

    return layer(x, x.packed.input_ids, attend, x.packed.gather)


@bench.provider("rrgkern")
def ours(mask: Tensor, x: Inputs) -> list[Tensor]:
    def attend(*qkv: Tensor) -> Tensor:
        return shared_prefix_attention(*qkv, x.layout)

    return layer(x, x.packed.input_ids, attend, x.packed.gather)


@bench.provider("rrgkern, flex", device="cuda")
def flex(mask: Tensor, x: Inputs) -> list[Tensor]:
    def attend(*qkv: Tensor) -> Tensor:
        return shared_prefix_flex_attention(*qkv, x.blocks)

    return layer(x, x.packed.input_ids, attend, x.packed.gather)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_decoder_layer(benchmark, shape):
    groups, members, prompt, report, heads, head = shape

    def make_inputs(seed: int) -> tuple[Tensor, Inputs]:
        x = Inputs(seed, shape)
        return x.packed.attention_mask(DTYPE), x

    bench.compare(
        benchmark,
        make_inputs,
        shape={
            "groups": groups,
            "members": members,
            "prompt": prompt,
            "report": report,
            "width": heads * head,
        },
        dtype=DTYPE,
        case="decoder layer, forward+backward",
        rounds=10,
        # bf16 rounds the attention of each layout by itself.
        agree=Agree(6, 0.05 if DEVICE == "cuda" else 1e-3),
    )


@decode.provider("unshared")
def unshared_step(step: DecodeStep, keys: Tensor, values: Tensor) -> Tensor:
    """Attend with a prompt a row, [rows, key heads, P + room, D]."""
    at = step.place + step.prompt_keys.shape[2]
    keys.index_copy_(2, at, step.key[:, :, None])
    values.index_copy_(2, at, step.value[:, :, None])
    mask = torch.arange(keys.shape[2], device=at.device)[None] <= at
    query = step.query[:, :, None]
    attend = F.scaled_dot_product_attention
    return attend(query, keys, values, attn_mask=mask, scale=step.scale, enable_gqa=True)[:, :, 0]


@decode.provider("rrgkern")
def our_step(step: DecodeStep, keys: Tensor, values: Tensor) -> Tensor:
    return shared_prefix_decode(step)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_decode_step(benchmark, shape):
    groups, members, prompt, report, heads, head = shape
    rows = groups * members

    def make_inputs(seed: int) -> tuple[DecodeStep, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)

        def states(*size: int) -> Tensor:
            return torch.randn(*size, head, generator=generator).to(DEVICE, DTYPE)

        query, (key, value) = states(rows, heads), (states(rows, KEY_HEADS) for _ in range(2))
        prompts = [states(groups, KEY_HEADS, prompt) for _ in range(2)]
        own = [states(rows, KEY_HEADS, report) for _ in range(2)]
        place = torch.tensor([report // 2], device=DEVICE)
        step = DecodeStep(query, key, value, *prompts, *own, place, scale=head**-0.5)
        copies = (x.repeat_interleave(members, 0) for x in prompts)
        return step, *(torch.cat(parts, 2) for parts in zip(copies, own, strict=True))

    decode.compare(
        benchmark,
        make_inputs,
        shape={"rows": rows, "prompt": prompt, "room": report, "heads": heads, "head": head},
        dtype=DTYPE,
        case="decode step",
        rounds=50,
        # keys and values of a prompt once, those of rows up to their place
        bytes_moved=2 * (groups * prompt + rows * report / 2) * KEY_HEADS * head * DTYPE.itemsize,
        agree=Agree(1, 0.02 if DEVICE == "cuda" else 1e-5),
    )
