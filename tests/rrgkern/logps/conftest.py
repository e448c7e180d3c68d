"""Both kernels of the room: Triton, interpreted without a GPU, and PyTorch's for CPUs."""

from __future__ import annotations

import pytest

from rrgkern.logps import op, triton_from_hidden
from tests.rrgkern.device import DEVICE


@pytest.fixture(params=["triton", "torch"])
def kernel(request, monkeypatch) -> str:
    """Which kernel serves the ops during the test."""
    if request.param == "torch":
        if DEVICE != "cpu":
            pytest.skip("on CUDA tensors Triton serves")
        use_torch(monkeypatch)
    return request.param


@pytest.fixture
def torch_kernel(monkeypatch) -> None:
    """The kernel that serves CPUs, for what does not depend on the kernel."""
    if DEVICE == "cpu":
        use_torch(monkeypatch)


def use_torch(monkeypatch) -> None:
    for name, served in (
        ("fwd", op.linear_token_logps_fwd),
        ("bwd", op.linear_token_logps_bwd),
        ("bwd_into", op.linear_token_logps_bwd_into),
    ):
        monkeypatch.setattr(triton_from_hidden, name, served._init_fn)
