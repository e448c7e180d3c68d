"""Triton's interpreter as the tests have it (`tests/interpreter.py`)."""

from __future__ import annotations

import os

import pytest
import torch

from rrgkern import group_advantages
from tests.interpreter import patch_once


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="a GPU takes its place")
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
