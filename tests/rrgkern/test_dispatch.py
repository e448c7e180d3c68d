"""Who serves an op: a kernel where it can, the reference with one warning where it cannot."""

from __future__ import annotations

import itertools
import os
import warnings

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import CustomOpDef

from rrgkern import dispatch, group_advantages
from tests.interpreter import patch_once

_names = (f"rrgkern_test::op{i}" for i in itertools.count())


@pytest.fixture
def op(monkeypatch) -> CustomOpDef:
    """An op of its own that adds 1; nothing of it stays in the record."""
    monkeypatch.setattr(dispatch, "_kernels", dict(dispatch._kernels))
    monkeypatch.setattr(dispatch, "_announced", set())

    def add_one(x: Tensor) -> Tensor:
        return x + 1

    return torch.library.custom_op(next(_names), add_one, mutates_args=())


def add_two(x: Tensor) -> Tensor:
    return x + 2


def test_an_op_without_a_kernel_runs_its_reference_silently(op):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert op(torch.zeros(1)) == 1
    assert dispatch.served_by(op._qualname, "cpu") == "reference"


def test_csrc_serves_the_devices_it_was_registered_for(op):
    dispatch.register_csrc(op, add_two, ("cpu",), "mccs")
    assert op(torch.zeros(1)) == 2
    assert dispatch.served_by(op._qualname, "cpu") == "csrc mccs"
    assert dispatch.served_by(op._qualname, "cuda") == "reference"


def test_a_room_that_the_extension_lacks_falls_back_and_says_so_once(op):
    dispatch.register_csrc(op, add_two, ("cpu",), "no_such_room")
    with pytest.warns(dispatch.SlowPathWarning, match="older than csrc/no_such_room") as seen:
        assert [op(torch.zeros(1)).item() for _ in range(3)] == [1, 1, 1]
    assert len(seen) == 1
    assert dispatch.served_by(op._qualname, "cpu").startswith("reference (the compiled extension")


def test_triton_serves_cpu_only_under_its_interpreter(op, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    dispatch.register_triton(op, __name__, "add_two")
    assert op(torch.zeros(1)) == 1
    assert dispatch.served_by(op._qualname, "cpu") == "reference"
    assert dispatch.served_by(op._qualname, "cuda") == f"triton {__name__}"


def test_triton_launcher_is_looked_up_at_the_first_call(op, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    dispatch.register_triton(op, "tests.rrgkern.test_dispatch", "add_two")
    assert op(torch.zeros(1)) == 2


def test_without_triton_the_reference_serves_and_says_so_once(op, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(dispatch, "_no_triton", lambda: "triton is not installed")
    dispatch.register_triton(op, "no_such_module", "add_two")
    with pytest.warns(dispatch.SlowPathWarning, match="triton is not installed") as seen:
        assert [op(torch.zeros(1)).item() for _ in range(2)] == [1, 1]
    assert len(seen) == 1


OPS = (
    *("policy_loss_fwd", "policy_loss_from_logits_fwd", "policy_loss_from_logits_fwd_"),
    *("policy_loss_from_logits_scale_", "preference_loss_fwd", "linear_policy_loss_fwd"),
    *("linear_policy_loss_scale_", "linear_token_logps_bwd_into", "token_logps_fwd"),
)


@pytest.mark.parametrize("name", OPS)
def test_triton_serves_gpus_and_here_its_interpreter(name) -> None:
    devices = ("cuda", "cpu") if os.environ.get("TRITON_INTERPRET") == "1" else ("cuda",)
    assert all(dispatch.served_by(f"rrgkern::{name}", x).startswith("triton") for x in devices)


def test_a_kernel_that_fails_is_never_replaced_by_the_reference(op, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    dispatch.register_triton(op, "no_such_module", "add_two")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        op(torch.zeros(1))


class TwoDevices:
    """In the place of `torch.cuda.device` on a machine with two of them."""

    current = 0

    def __init__(self, device: torch.device) -> None:
        self.index, self.before = device.index, TwoDevices.current

    def __enter__(self) -> None:
        TwoDevices.current = self.index

    def __exit__(self, *_: object) -> None:
        TwoDevices.current = self.before


def current_device(*_: object) -> int:
    return TwoDevices.current


def test_a_launcher_runs_on_the_device_of_its_tensors(op, monkeypatch):
    served = {}
    monkeypatch.setattr(
        dispatch, "_register", lambda op, on, launch, _: served.update({on: launch})
    )
    monkeypatch.setattr(torch.cuda, "device", TwoDevices)
    dispatch.register_triton(op, __name__, "current_device")
    with FakeTensorMode():
        first, second = (torch.empty(1, device=f"cuda:{i}") for i in range(2))
    assert served["cuda"](0.5, None, second, torch.zeros(1)) == 1
    assert served["cuda"](first) == TwoDevices.current == 0
    with pytest.raises(ValueError, match="on cuda:0 and cuda:1 in one call; move them to one"):
        served["cuda"](first, 2, second)


# Triton's interpreter as the tests have it (`tests/interpreter.py`).
interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="a GPU takes its place"
)


@interpreted
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


@interpreted
def test_an_offset_that_overflows_is_refused() -> None:
    from triton.runtime import interpreter

    patch_once()
    semantic = interpreter.interpreter_semantic
    offsets = semantic.mul(semantic.arange(0, 8), 2**28 - 1, True)
    for operation in (semantic.add, semantic.mul):
        with pytest.raises(AssertionError, match="int32 overflow detected for operation"):
            operation(offsets, offsets, True)
