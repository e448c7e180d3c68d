"""FlexAttention over packed groups: the block mask by its ends, and the attention with it."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode

from rrgkern.shared_prefix import (
    flex,
    pack_shared_prefix,
    shared_prefix_block_mask,
    shared_prefix_flex_attention,
)
from tests.rrgkern.device import DEVICE
from tests.rrgkern.shared_prefix.eager_flex import uncompiled
from tests.rrgkern.shared_prefix.test_attention import SIZES, dense, inputs, outcome, pack, scored

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


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that is made."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.seen = max(self.seen, out.numel())
        return out


def test_no_mask_of_a_whole_row_is_made() -> None:
    ones = torch.ones(100, dtype=torch.int64, device=DEVICE)
    batch = pack_shared_prefix([ones.repeat(5)] * 2, [[ones] * 7] * 2, token_budget=4096)
    length = batch.group.shape[1]
    with Largest() as largest:
        shared_prefix_block_mask(batch)
    blocks = -(-length // 128)
    assert length == 2400 and 0 < largest.seen <= blocks * 128 * blocks < length**2 / 100


@pytest.mark.parametrize("budget", [None, 24])
def test_it_attends_as_the_dense_mask_does(
    budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncompiled(monkeypatch)
    batch = pack(SIZES, budget)
    mask = shared_prefix_block_mask(batch, block_size=4)

    def flex(tensors: list[torch.Tensor]) -> torch.Tensor:
        return shared_prefix_flex_attention(*tensors, mask)

    ours = outcome(flex, batch, torch.float64)
    wanted = outcome(lambda t: dense(t, batch, torch.float64), batch, torch.float64)
    torch.testing.assert_close(ours[0], wanted[0])
    for left, right in zip(ours[1], wanted[1], strict=True):
        torch.testing.assert_close(left, right)


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


def test_the_mask_goes_to_the_batchs_device_and_needs_a_place() -> None:
    assert isinstance(shared_prefix_block_mask(pack(SIZES, None)), BlockMask)
    with pytest.raises(ValueError, match="the batch has no places"):
        shared_prefix_block_mask(pack([], None))


@pytest.mark.product
@pytest.mark.skipif(DEVICE == "cuda", reason="compiles a dozen kernels")
def test_as_many_variants_are_compiled_as_a_run_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four shapes (one row or more, one block or more) in three dtypes; PyTorch stops at eight."""
    compile_by("eager", monkeypatch)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows, length in itertools.product((1, 2), (20, 200)):
            ones = torch.ones(length, dtype=torch.int64)
            batch = pack_shared_prefix([ones] * rows, [[ones]] * rows, token_budget=2 * length)
            heads = torch.zeros(rows, 2, batch.group.shape[1], 16, dtype=dtype)
            mask = shared_prefix_block_mask(batch)
            assert shared_prefix_flex_attention(heads, heads, heads, mask).shape == heads.shape
