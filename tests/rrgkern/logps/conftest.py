"""The kernels of the room: Triton, interpreted without a GPU, and those for CPUs."""

from __future__ import annotations

from functools import partial

import pytest

from rrgkern.logps import from_hidden, triton_tile
from rrgkern.logps.from_hidden import CSRC_TILES, TORCH_TILES
from rrgkern.logps.head import Tiles
from tests.rrgkern.device import DEVICE


@pytest.fixture(params=["triton", "torch", "csrc"])
def kernel(request, monkeypatch) -> str:
    """Choose the kernel that serves the ops during the test."""
    if request.param != "triton":
        if DEVICE != "cpu":
            pytest.skip("on CUDA tensors Triton serves")
        use(monkeypatch, CSRC_TILES if request.param == "csrc" else TORCH_TILES)
    return request.param


@pytest.fixture
def torch_kernel(monkeypatch) -> None:
    """A kernel that serves CPUs, for what does not depend on the kernel."""
    if DEVICE == "cpu":
        use(monkeypatch, TORCH_TILES)


def use(monkeypatch, tiles: Tiles) -> None:
    for name in ("fwd", "bwd", "bwd_into"):
        served = partial(getattr(from_hidden, name), tiles)
        monkeypatch.setattr(triton_tile, name, served)
