"""Block-wise attention against scaled_dot_product_attention with the dense mask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rrgkern.shared_prefix import (
    SharedPrefixBatch,
    attention_layout,
    pack_shared_prefix,
    shared_prefix_attention,
)
from tests.rrgkern.device import DEVICE
from tests.tolerance import assert_close_to_truth

HEADS, KEY_HEADS, WIDTH = 4, 2, 8
SIZES = [(5, [3, 0, 6]), (2, []), (7, [1]), (1, [4, 4])]


def pack(
    sizes: list[tuple[int, list[int]]], budget: int | None, multiple_of: int = 1
) -> SharedPrefixBatch:
    def ones(n: int) -> torch.Tensor:
        return torch.ones(n, dtype=torch.int64, device=DEVICE)

    return pack_shared_prefix(
        [ones(p) for p, _ in sizes],
        [[ones(t) for t in members] for _, members in sizes],
        token_budget=budget,
        multiple_of=multiple_of,
    )


def inputs(batch: SharedPrefixBatch, dtype: torch.dtype, width: int = WIDTH) -> list[torch.Tensor]:
    """Query, key and value as a model makes them: the heads are the inner axis in memory."""
    rows, length = batch.input_ids.shape
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(rows, length, heads, width, generator=generator, dtype=torch.float64)
        .to(DEVICE, dtype)
        .transpose(1, 2)
        .requires_grad_()
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    ]


def dense(
    tensors: list[torch.Tensor], batch: SharedPrefixBatch, dtype: torch.dtype
) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        *tensors, attn_mask=batch.attention_mask(dtype), enable_gqa=True
    )


def scored(out: torch.Tensor, batch: SharedPrefixBatch) -> torch.Tensor:
    """All places that are not padding, [places, heads * width]."""
    return out.transpose(1, 2).flatten(2).flatten(0, 1)[batch.group.flatten() >= 0]


def outcome(
    attend: object, batch: SharedPrefixBatch, dtype: torch.dtype
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    tensors = inputs(batch, dtype)
    out = scored(attend(tensors), batch)  # type: ignore[operator]
    weights = torch.linspace(0, 9, out.numel(), dtype=torch.float64).sin().view_as(out).to(DEVICE)
    (out * weights.to(dtype)).sum().backward()
    return out.detach(), [t.grad.transpose(1, 2).flatten(2).flatten(0, 1) for t in tensors]


@pytest.mark.parametrize("budget", [None, 24, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_dense_attention(dtype: torch.dtype, budget: int | None) -> None:
    batch = pack(SIZES, budget)
    layout = attention_layout(batch)
    ours = outcome(lambda t: shared_prefix_attention(*t, layout), batch, dtype)
    eager = outcome(lambda t: dense(t, batch, dtype), batch, dtype)
    # The truth starts from the values as rounded to `dtype`.
    rounded = [t.detach().double().requires_grad_() for t in inputs(batch, dtype)]
    out = scored(dense(rounded, batch, torch.float64), batch)
    weights = torch.linspace(0, 9, out.numel(), dtype=torch.float64).sin().view_as(out).to(DEVICE)
    (out * weights.to(dtype).double()).sum().backward()
    truth = [out.detach(), *(t.grad.transpose(1, 2).flatten(2).flatten(0, 1) for t in rounded)]
    eps = torch.finfo(dtype).eps
    for actual, same_dtype, exact in zip(
        [ours[0], *ours[1]], [eager[0], *eager[1]], truth, strict=True
    ):
        assert_close_to_truth(actual, same_dtype, exact, tiny=eps * float(exact.norm(dim=1).max()))


GROUPS = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=4)), min_size=1, max_size=4
)


@given(GROUPS, st.one_of(st.none(), st.integers(1, 40)))
@settings(max_examples=60, deadline=None)
def test_equals_dense_attention_for_any_groups(
    sizes: list[tuple[int, list[int]]], budget: int | None
) -> None:
    batch = pack(sizes, budget)
    layout = attention_layout(batch)
    ours = outcome(lambda t: shared_prefix_attention(*t, layout), batch, torch.float64)
    wanted = outcome(lambda t: dense(t, batch, torch.float64), batch, torch.float64)
    torch.testing.assert_close(ours[0], wanted[0])
    for left, right in zip(ours[1], wanted[1], strict=True):
        torch.testing.assert_close(left, right)


def test_hidden_values_change_no_bit() -> None:
    """NaN in another group, another member or the padding reaches nothing."""
    batch = pack([(5, [3, 6]), (4, [2])], 16)
    layout = attention_layout(batch)
    tensors = [t.detach() for t in inputs(batch, torch.float32)]
    clean = shared_prefix_attention(*tensors, layout).transpose(1, 2).flatten(0, 1)
    foreign = ((batch.group != 0) | (batch.member == 0)).flatten()
    mine = ((batch.group == 0) & (batch.member != 0)).flatten()
    for t in tensors:
        t.transpose(1, 2).flatten(0, 1)[foreign] = float("nan")
        flat = t.transpose(1, 2).reshape(-1, t.shape[1], WIDTH)
        flat[foreign] = float("nan")
        t.copy_(flat.view(*batch.input_ids.shape, t.shape[1], WIDTH).transpose(1, 2))
    poisoned = shared_prefix_attention(*tensors, layout).transpose(1, 2).flatten(0, 1)
    assert torch.equal(clean[mine], poisoned[mine])
    assert poisoned[foreign].isnan().any()


def test_compiles_without_a_break() -> None:
    batch = pack(SIZES, 24)
    layout = attention_layout(batch)
    tensors = [t.detach() for t in inputs(batch, torch.float32)]
    compiled = torch.compile(shared_prefix_attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(*tensors, layout, scale=0.3), shared_prefix_attention(*tensors, layout, scale=0.3)
    )


def test_shapes_that_do_not_fit_are_told() -> None:
    batch = pack(SIZES, None)
    layout = attention_layout(batch)
    query, key, value = (t.detach() for t in inputs(batch, torch.float32))
    with pytest.raises(ValueError, match="alike but for the number of key heads"):
        shared_prefix_attention(query, key, value[..., :4], layout)
    with pytest.raises(ValueError, match="the layout of the same batch"):
        shared_prefix_attention(query[:1], key[:1], value[:1], layout)
    with pytest.raises(ValueError, match="3 key heads"):
        shared_prefix_attention(query, query[:, :3], query[:, :3], layout)
