"""The kernels of the room, with tiles so small that every test has borders in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from torch import Tensor

from rrgkern.logps import from_hidden, triton_tile
from rrgkern.logps import op as logps_op
from rrgkern.logps.from_hidden import CSRC_TILES
from rrgkern.logps.head import Tiling
from rrgkern.policy_loss import op as policy_op
from rrgkern.policy_loss.linear import autograd, op, triton_kernels
from rrgkern.policy_loss.linear.inputs import LinearInputs
from rrgkern.policy_loss.reference import policy_loss_reference
from tests.products import more
from tests.rrgkern.device import DEVICE

TILING = Tiling(columns=128, elements=128 * 8)
HELD = 200 * 6


@pytest.fixture
def small_tiles(monkeypatch) -> None:
    """Two slices of a vocabulary of 200, blocks of eight rows, six rows held."""
    cpu = logps_op.TORCH_TILES._replace(tiling=TILING)
    monkeypatch.setattr(op, "CPU_PLAN", op.CPU_PLAN._replace(tiles=cpu, held=HELD))
    shrink_triton(monkeypatch)
    gpu = triton_tile.TILES._replace(tiling=TILING)
    monkeypatch.setattr(triton_tile, "TILES", gpu)
    monkeypatch.setattr(logps_op, "TORCH_TILES", cpu)


def shrink_triton(monkeypatch) -> None:
    """Give the loss's launcher two slices of a vocabulary of 200, and six rows held."""
    plan = triton_kernels.PLAN
    tiles = plan.tiles._replace(tiling=TILING)
    monkeypatch.setattr(triton_kernels, "PLAN", plan._replace(tiles=tiles, held=HELD))


@pytest.fixture(params=["triton", "torch", "csrc", *more("csrc, whole rows")])
def kernel(request, monkeypatch, small_tiles) -> str:
    """Choose the kernel that serves the ops during the test; on CUDA tensors Triton does.

    "csrc, whole rows": a slice has the whole vocabulary.
    """
    if request.param != "triton":
        if DEVICE != "cpu":
            pytest.skip("on CUDA tensors Triton serves")
        use_torch(monkeypatch)
    if "csrc" in request.param:
        columns = 1024 if "whole" in request.param else TILING.columns
        tiles = CSRC_TILES._replace(tiling=TILING._replace(columns=columns))
        plan = op.CSRC_PLAN._replace(tiles=tiles, held=HELD)
        monkeypatch.setattr(triton_kernels, "PLAN", plan)
        for name in ("fwd", "bwd", "bwd_into"):
            served = partial(getattr(from_hidden, name), tiles)
            monkeypatch.setattr(triton_tile, name, served)
    return request.param


@pytest.fixture
def torch_kernel(monkeypatch, small_tiles) -> None:
    """The kernel that serves CPUs, for what does not depend on the kernel."""
    if DEVICE == "cpu":
        use_torch(monkeypatch)


@pytest.fixture
def in_the_open(monkeypatch, small_tiles) -> None:
    """Serve CPUs without the ops around it all, so that a dispatch mode sees every step."""
    open_up(monkeypatch)


def open_up(monkeypatch) -> None:
    def forward_of(call: LinearInputs) -> Callable[..., Any]:
        return op.linear_policy_loss_fwd._init_fn

    def direct(called: Any, *tensors: Tensor) -> Any:
        return called

    for module in (op, autograd):
        monkeypatch.setattr(module, "forward_of", forward_of)
        monkeypatch.setattr(module, "direct", direct)
    monkeypatch.setattr(
        autograd, "linear_policy_loss_scale_", op.linear_policy_loss_scale_._init_fn
    )
    monkeypatch.setattr(
        autograd, "linear_token_logps_bwd_into", logps_op.linear_token_logps_bwd_into._init_fn
    )
    monkeypatch.setattr(op, "linear_token_logps_bwd", logps_op.linear_token_logps_bwd._init_fn)
    monkeypatch.setattr(policy_op, "policy_loss_fwd", policy_loss_reference)
    monkeypatch.setattr(policy_op, "_direct", lambda *tensors: False)


def use_torch(monkeypatch) -> None:
    monkeypatch.setattr(triton_kernels, "PLAN", op.CPU_PLAN)
    for module, name, served in (
        (triton_kernels, "scale_in_place", op.linear_policy_loss_scale_),
        (triton_tile, "fwd", logps_op.linear_token_logps_fwd),
        (triton_tile, "bwd", logps_op.linear_token_logps_bwd),
        (triton_tile, "bwd_into", logps_op.linear_token_logps_bwd_into),
    ):
        monkeypatch.setattr(module, name, served._init_fn)
