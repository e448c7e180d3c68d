"""FlexAttention over packed groups: the block mask by its ends, and the attention with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.attention.flex_attention as flex_attention
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from rrgkern.shared_prefix import (
    SharedPrefixBatch,
    flex,
    pack_shared_prefix,
    shared_prefix_block_mask,
    shared_prefix_flex_attention,
)
from tests.operators import Operators
from tests.products import more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.shared_prefix.test_attention import dense, inputs, pack, scored
from tests.tolerance import assert_close_to_truth

GROUPS = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(0, 7), max_size=4)), min_size=1, max_size=4
)
BLOCKS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks")


@given(GROUPS, st.one_of(st.none(), st.integers(1, 60)), st.integers(1, 6), st.integers(1, 8))
@settings(max_examples=80, deadline=None)
def test_the_block_mask_is_the_one_of_all_pairs(
    sizes: list[tuple[int, list[int]]], budget: int | None, block: int, multiple: int
) -> None:
    batch = pack(sizes, budget, multiple)
    rows, length = batch.group.shape
    found = shared_prefix_block_mask(batch, block_size=block)
    wanted = create_block_mask(
        batch.mask_mod(), rows, None, length, length, device=DEVICE, BLOCK_SIZE=block
    )
    assert found.shape == wanted.shape and found.BLOCK_SIZE == wanted.BLOCK_SIZE
    for name in BLOCKS:
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


def test_no_mask_of_a_whole_row_is_made() -> None:
    ones = torch.ones(100, dtype=torch.int64, device=DEVICE)
    batch = pack_shared_prefix([ones.repeat(5)] * 2, [[ones] * 7] * 2, token_budget=4096)
    length = batch.group.shape[1]
    made = Operators(lambda _, args, out: [out.numel()] if isinstance(out, Tensor) else [])
    with made:
        shared_prefix_block_mask(batch)
    blocks = -(-length // 128)
    assert length == 2400 and 0 < max(made.noted) <= blocks * 128 * blocks < length**2 / 100


@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.gate,
                pytest.mark.slow,
                pytest.mark.skipif(
                    DEVICE == "cpu" and not torch.cpu._is_avx2_supported(),
                    reason="no kernel for this CPU",
                ),
            ],
        ),
    ],
)
def test_it_is_compiled_once_for_batches_of_any_length(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forward; PyTorch compiles the backward for a GPU only.

    Guards are those of the graph, whatever makes code of it: in PyTorch's own compiler for a
    minute of g++, in a gate.
    """
    if backend == "eager":
        compile_by(backend, monkeypatch)
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for sizes in ([(150, [60])], [(200, [60, 50]), (90, [40])], [(30, [45] * 9)]):
            batch = pack(sizes, 10**4, 128)
            tensors = [t.detach() for t in inputs(batch, torch.float32, width=32)]
            found = shared_prefix_flex_attention(*tensors, shared_prefix_block_mask(batch))
            wanted = dense(tensors, batch, torch.float32)
            torch.testing.assert_close(scored(found, batch), scored(wanted, batch))


def compile_by(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another backend compile the attention, with the options that the room asks for."""
    with monkeypatch.context() as patched:
        patched.setattr(torch, "compile", partial(torch.compile, backend=backend))
        once = flex.compiled.__wrapped__()
    monkeypatch.setattr(flex, "compiled", lambda: once)


# FlexAttention against dense SDPA at the models' ratios of heads, forward and backward.
#
# On a GPU the compiled kernels, as the trainer calls them: bf16, heads of 128, under checkpointing,
# one compilation for batches of three lengths. On a CPU PyTorch's uncompiled form of small heads.
# Qwen2.5-VL-3B and -7B.
RATIOS = pytest.mark.parametrize("heads", [(16, 2), (28, 4)], ids=str)


def leaves(batch: SharedPrefixBatch, heads: tuple[int, int], width: int) -> list[Tensor]:
    """Query, key and value in fp64, of numbers that bf16 holds."""
    rows, length = batch.input_ids.shape
    generator = torch.Generator().manual_seed(length)
    return [
        torch.randn(rows, length, count, width, generator=generator)
        .bfloat16()
        .to(DEVICE, torch.float64)
        .transpose(1, 2)
        for count in (heads[0], heads[1], heads[1])
    ]


def outcome_of_heads(
    attend: Callable[..., Tensor], batch: SharedPrefixBatch, given: list[Tensor], dtype: torch.dtype
) -> list[Tensor]:
    """Output and gradients at all places that are not padding, through a checkpoint."""
    tensors = [t.to(dtype).requires_grad_() for t in given]
    out = scored(checkpoint(attend, *tensors, use_reentrant=False), batch)
    weights = torch.linspace(0, 9, out.numel(), dtype=torch.float64).sin().view_as(out)
    gradients = torch.autograd.grad((out * weights.to(DEVICE, dtype)).sum(), tensors)
    return [out.detach(), *(scored(gradient, batch) for gradient in gradients)]


def compare(
    sizes: list[tuple[int, list[int]]],
    heads: tuple[int, int],
    width: int,
    dtype: torch.dtype,
    roundings: int = 1,
) -> None:
    """roundings: of the largest row, which each row may be off beside twice eager's error."""
    batch = pack(sizes, 10**4, 128)
    given = leaves(batch, heads, width)
    mask = shared_prefix_block_mask(batch)

    def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        visible = batch.attention_mask(query.dtype)
        return scaled_dot_product_attention(query, key, value, attn_mask=visible, enable_gqa=True)

    def packed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return shared_prefix_flex_attention(query, key, value, mask)

    ours, eager = (outcome_of_heads(attend, batch, given, dtype) for attend in (packed, dense))
    truth = outcome_of_heads(dense, batch, given, torch.float64)
    for got, same_dtype, exact in zip(ours, eager, truth, strict=True):
        tiny = roundings * torch.finfo(dtype).eps * float(exact.norm(dim=1).max())
        assert_close_to_truth(got, same_dtype, exact, tiny=tiny)


# 256, 384 and 512 places: a row of one block would have a compilation of its own.
THREE_LENGTHS = (
    [(140, [20, 7, 30])],
    [(200, [60]), (60, [9, 11])],
    [(200, [60, 50]), (90, [40]), (30, [5, 5])],
)


@pytest.mark.parametrize("heads", [(16, 2), *more((28, 4))], ids=str)
@pytest.mark.parametrize(
    "sizes", [THREE_LENGTHS[2], *more(*THREE_LENGTHS[:2])], ids=["512", "256", "384"]
)
def test_the_uncompiled_form(
    sizes: list[tuple[int, list[int]]], heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    uncompiled(monkeypatch)
    # An H100's SDPA sums a key's gradient over heads and members in another order: 1.14 was seen.
    compare(sizes, heads, 4, torch.float32, 2 if DEVICE == "cuda" else 1)


@RATIOS
@pytest.mark.gpu
def test_the_compiled_kernels(heads: tuple[int, int]) -> None:
    # The other ratio's kernels are another compilation.
    torch._dynamo.reset()
    flex.compiled.cache_clear()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for sizes in THREE_LENGTHS:
            compare(sizes, heads, 128, torch.bfloat16)
    # As long as a row of the trainer: prompts of 1,600 tokens, ten reports each.
    compare([(1600, [150] * 10), (1400, [97] * 10)], heads, 128, torch.bfloat16)


# PyTorch refuses FlexAttention's gradients on a CPU, whose compiled backward has no kernel;
# its own definition, which writes the scores out, computes on any device.
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "compiled", lambda: flex_attention.flex_attention)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex_attention, "_warn_once", lambda *_, **__: None, raising=False)
