"""Triton's interpreter as the tests have it (`tests/interpreter.py`)."""

from __future__ import annotations

import os

import pytest
import torch

from rrgkern import group_advantages
from tests.interpreter import patch_once

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="a GPU takes its place"
)


def test_the_language_is_patched_once_a_launch_and_put_back(monkeypatch) -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    patch_once()
    patch, places = interpreter._patch_builtin, []
    monkeypatch.setattr(
        interpreter, "_patch_builtin", lambda *args: (places.append(args[0]), patch(*args))[1]
    )
    before = (tl.sum, tl.where, tl.math.sqrt, tl.tensor.__add__)
    found = group_advantages(torch.tensor([1.0, 2.0, 6.0, 1.0, 3.0]), torch.tensor([0, 3, 5]))
    assert found[0] < found[1] < 0 < found[2] and found[3] == -found[4]
    # four places in tl, three in tl.core, for each launch; a call each were more than fifty
    assert 0 < len(places) <= 14, "a call patched it again"
    assert (tl.sum, tl.where, tl.math.sqrt, tl.tensor.__add__) == before


def test_an_offset_that_overflows_is_refused_and_types_are_those_of_triton() -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    patch_once()
    semantic = interpreter.interpreter_semantic
    offsets = semantic.mul(semantic.arange(0, 8), 2**28 - 1, True)
    assert (offsets.type, offsets.dtype, offsets.numel.value) == (
        tl.block_type(tl.int32, [8]),
        tl.int32,
        8,
    )
    assert offsets.handle.data.dtype == interpreter._get_np_dtype(offsets.type) == "int32"
    assert interpreter._get_np_dtype(tl.block_type(tl.pointer_type(tl.int8), [2])) == "uint64"
    for operation in (semantic.add, semantic.mul):
        with pytest.raises(AssertionError, match="int32 overflow detected for operation"):
            operation(offsets, offsets, True)
    with pytest.raises(AssertionError, match="int32 overflow detected for operation sub"):
        semantic.sub(semantic.minus(offsets), offsets, True)
    wide = semantic.cast(offsets, tl.int64)
    assert semantic.add(wide, wide, True).handle.data.max() == 14 * (2**28 - 1)
