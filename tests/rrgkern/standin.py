"""A device that stands in for a GPU: its tensors live in CPU memory and refuse to meet CPU tensors.

What is wrong with a test on a GPU is seldom its arithmetic: it leaves a tensor on the CPU and
compares the reference with itself, it mixes the two devices, or it asserts what only holds under
Triton's interpreter. All of that shows here, without a GPU:

    RRGKERN_TEST_DEVICE=standin pytest -p tests.rrgkern.standin tests/rrgkern/...

An op of the library is served by its reference here, and a test that calls one with CPU tensors
fails: on a GPU machine no kernel would be behind it. Tests that exchange or call a launcher are
skipped. RRGKERN_STANDIN_CASES=first runs the first case of each test; RRGKERN_STANDIN_HOST names
ops that may meet CPU tensors, since the trainer has theirs on the host.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

os.environ["TRITON_INTERPRET"] = "0"  # as on a machine with a GPU, and before triton is imported
from triton.runtime.jit import JITFunction

NAME = "standin"
_ATEN = torch.ops.aten
_ON_HOST = os.environ.get("RRGKERN_STANDIN_HOST", "").split(",")
# On a GPU too these take tensors of the CPU beside its own.
_MIXING = {_ATEN.copy_, _ATEN._to_copy, _ATEN.index, _ATEN.index_put, _ATEN.index_put_}


class OnStandin(Tensor):
    """A tensor of the stand-in; `raw` is the CPU tensor behind it."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> OnStandin:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(NAME, 0),
        )
        made.raw = raw
        return made

    def __repr__(self) -> str:
        return f"standin:{self.raw!r}"

    def tolist(self) -> Any:
        return self.raw.tolist()

    def __getitem__(self, index: Any) -> Tensor:
        # PyTorch would make a list a tensor of this device by a way that asks for its name.
        return super().__getitem__(torch.tensor(index) if isinstance(index, list) else index)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(torch.tensor(index) if isinstance(index, list) else index, value)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return on_cpu(func, *args, **(kwargs or {}))


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """Call `function` on what an op takes or returns, in the lists, tuples and mappings it lies in.

    As tree_map of PyTorch, which walks by a table of types that takes longer than the op itself.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([each(function, item) for item in value])
    if kind is dict:
        return {name: each(function, item) for name, item in value.items()}
    if isinstance(value, tuple | list | dict):
        return pytree.tree_map(function, value)
    return function(value)


def on_cpu(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run `func` on the CPU tensors behind its arguments; the results are on the stand-in."""
    behind: dict[int, OnStandin] = {}
    mixes = func.overloadpacket in _MIXING
    target = kwargs.get("device")
    to_cpu = target is not None and torch.device(target).type == "cpu"

    def unwrap(leaf: Any) -> Any:
        if isinstance(leaf, OnStandin):
            behind[id(leaf.raw)] = leaf
            return leaf.raw
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        if not mixes and isinstance(leaf, Tensor) and leaf.ndim:
            raise RuntimeError(f"{func}: a tensor on {NAME}, another on {leaf.device}")
        return leaf

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or to_cpu:
            return leaf
        return behind[id(leaf)] if id(leaf) in behind else OnStandin(leaf)

    args_on_cpu, kwargs_on_cpu = each(unwrap, args), each(unwrap, kwargs)
    out = func(*args_on_cpu, **kwargs_on_cpu)
    if func.overloadpacket is _ATEN.copy_ and not isinstance(args[0], OnStandin):
        return args[0]
    return each(wrap, out)


class _GpuMachine(TorchDispatchMode):
    """Make the stand-in's tensors, and refuse an op of the library that gets CPU tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors: list[Tensor] = []
        each(lambda x: tensors.append(x) if isinstance(x, Tensor) else None, (args, kwargs))
        here = any(isinstance(tensor, OnStandin) for tensor in tensors)
        ours = func.namespace == "rrgkern" and func.overloadpacket.__name__ not in _ON_HOST
        if ours and tensors and not here:
            raise AssertionError(f"{func} on {tensors[0].device}: on a GPU no kernel serves it")
        device = kwargs.get("device")
        if not here and device is not None and torch.device(device).type == NAME:
            return on_cpu(func, *args, **kwargs)
        return func(*args, **kwargs)


def _not_compiled(function: Any = None, **_: Any) -> Any:
    """In the place of torch.compile: a function that skips the test, when it is called.

    Packages compile their own at import (bitsandbytes); that is no test's doing.
    """

    def skips(*_: Any, **__: Any) -> Any:
        pytest.skip(f"nothing compiles for {NAME}")

    return skips if function is not None else _not_compiled


_tensor = torch.tensor


def _moved(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
    """`torch.tensor`, which asks a device for its name below all modes."""
    return _tensor(*args, **kwargs) if device is None else _tensor(*args, **kwargs).to(device)


def _call(op: Any, args: tuple[Any, ...], kwargs: Any = None, **_: Any) -> None:
    """In the place of `opcheck`, which knows no third device."""
    op(*args, **(kwargs or {}))


_factories = torch.library.Library("_", "IMPL")


def _launched(*_: Any, **__: Any) -> Any:
    pytest.skip("nothing runs a kernel here")


def pytest_configure() -> None:
    JITFunction.run = _launched
    _setup_privateuseone_for_python_backend(NAME)
    # Asked for by torch 2.11's checkpoint of a function that saves tensors.
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
    _factories.fallback(on_cpu, "PrivateUse1")  # for those that PyTorch calls below all modes
    _device_constructors()  # remembers `torch.tensor`, which `with torch.device(...)` must know
    torch.compile = _not_compiled
    torch.tensor = _moved
    torch.library.opcheck = _call
    _GpuMachine().__enter__()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop what needs a launcher; where asked to, drawn cases and all listed ones but the first."""
    items[:] = [item for item in items if not item.get_closest_marker("launcher")]
    if os.environ.get("RRGKERN_STANDIN_CASES") == "first":
        first = {
            (item.path, getattr(item, "originalname", item.name)): item for item in items[::-1]
        }
        drawn = (getattr(item.obj, "is_hypothesis_test", False) for item in items)
        kept = zip(items, drawn, strict=True)
        items[:] = [item for item, many in kept if item in first.values() and not many]
