"""FlexAttention against dense SDPA at the models' ratios of heads, forward and backward.

On a GPU the compiled kernels, as the trainer calls them: bf16, heads of 128, under checkpointing,
one compilation for batches of three lengths. On a CPU PyTorch's uncompiled form of small heads.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from rrgkern.shared_prefix import (
    SharedPrefixBatch,
    flex,
    shared_prefix_block_mask,
    shared_prefix_flex_attention,
)
from tests.products import more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.shared_prefix.eager_flex import uncompiled
from tests.rrgkern.shared_prefix.test_attention import pack, scored
from tests.tolerance import assert_close_to_truth

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


def outcome(
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

    ours, eager = (outcome(attend, batch, given, dtype) for attend in (packed, dense))
    truth = outcome(dense, batch, given, torch.float64)
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
