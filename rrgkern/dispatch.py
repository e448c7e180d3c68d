"""Registration of the kernels that serve an op, and the record of who serves what.

An op is born as a `torch.library.custom_op` whose body is the reference. The two functions
here attach faster implementations per device; the PyTorch dispatcher picks one, so no other
file of the library branches on a device.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import CustomOpDef

from rrgkern import csrc
from rrgkern.checks import functorch_level


class SlowPathWarning(UserWarning):
    """Warn that a reference serves an op that has a kernel here.

    Said once per op and device."""


@dataclass(frozen=True)
class _Kernel:
    """Who serves an op on a device: a name for the doctor, and why it cannot, if it cannot.

    `launch` may be called without the dispatcher, on plain tensors of that device.
    """

    name: str
    why_not: Callable[[], str | None]
    launch: Callable[..., Any] | None = None

    @functools.cached_property
    def direct(self) -> Callable[..., Any] | None:
        """`launch` where it can serve; asked once, since no answer of `why_not` changes."""
        return self.launch if self.why_not() is None else None


_kernels: dict[tuple[str, str], _Kernel] = {}
_announced: set[tuple[str, str]] = set()


def interpreting() -> bool:
    """True when Triton kernels run in its interpreter (TRITON_INTERPRET=1) on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def register_triton(
    op: CustomOpDef, module: str, launcher: str, through: Callable[..., Any] | None = None
) -> None:
    """Serve `op` on CUDA with `module.launcher`, and on CPU too under the interpreter.

    `through` is called with it before the op's arguments, where the module has no more than the
    part of the work that is Triton's.

    The module is imported at the first call: a machine without Triton can import the room, and
    the reference serves there. Under the interpreter the CPU registration is what lets opcheck
    and the mutant tests reach the kernel itself on a machine without a GPU.
    """

    def kernel(*args: Any) -> Any:
        launch = getattr(importlib.import_module(module), launcher)
        with _on_device_of(args):
            return launch(*args) if through is None else through(launch, *args)

    for device in ("cuda", "cpu") if interpreting() else ("cuda",):
        # Under the interpreter every call goes by the dispatcher, where opcheck meets it.
        direct = kernel if device == "cuda" else None
        _register(op, device, kernel, _Kernel(f"triton {module}", _no_triton, direct))


def _on_device_of(args: Sequence[Any]) -> AbstractContextManager[Any]:
    """Make the GPU that holds the tensors among `args` the current one.

    Triton launches on the current device and on its stream, wherever the pointers lead.

    Raises:
        ValueError: the tensors lie on two GPUs.
    """
    devices = {arg.device for arg in args if isinstance(arg, Tensor) and arg.device.type == "cuda"}
    if len(devices) > 1:
        found = " and ".join(sorted(map(str, devices)))
        raise ValueError(f"tensors on {found} in one call; move them to one device")
    return torch.cuda.device(devices.pop()) if devices else nullcontext()


def register_csrc(
    op: CustomOpDef, launcher: Callable[..., Any], devices: Sequence[str], source: str
) -> None:
    """Serve `op` on `devices` with `launcher`, which calls into the compiled extension.

    `source` is the folder under csrc/ that holds the kernel, `cpu.cc` or `cuda.cu` by device.
    Where the extension lacks it the reference serves, and says so once. Triton's interpreter keeps
    the CPU where `register_triton` came first.
    """
    for device in devices:
        if (op._qualname, device) not in _kernels:
            why_not = functools.partial(csrc.why_not, source, device)
            _register(op, device, launcher, _Kernel(f"csrc {source}", why_not, launcher))


def _register(op: CustomOpDef, device: str, launch: Callable[..., Any], kernel: _Kernel) -> None:
    def serve(*args: Any) -> Any:
        reason = kernel.why_not()
        if reason is None:
            return launch(*args)
        announce_slow_path(op._qualname, device, reason)
        return op._init_fn(*args)

    op.register_kernel(device)(serve)
    _kernels[op._qualname, device] = kernel


def direct(
    op: CustomOpDef, first: Tensor, *others: Tensor | None, devices: Sequence[str] = ("cpu",)
) -> Callable[..., Any]:
    """Return the launcher of `op` where nobody could tell, else the op.

    The dispatcher costs more than a small kernel, but it is what records, traces and transforms:
    compilation, forward mode, modes, tensor subclasses and torch.vmap get the op; derivatives of
    forward mode and torch.func it has none for, and the public functions refuse them
    (`check_derivatives`). The launcher knows no autograd. `first` and `others` are the tensors that
    a caller brings along, on one of `devices`.
    """
    tensors = (first, *others)
    if torch.compiler.is_compiling() or _is_tracing() or forward_ad._current_level >= 0:
        return op
    if not PLAIN.issuperset(map(type, tensors)):
        return op
    if (device := first.device.type) not in devices:
        return op
    for x in tensors:
        # The dispatcher also negates a lazily negated tensor before a kernel reads its memory.
        if x is not None and (x.device.type != device or _is_negated(x)):
            return op
    # Gradients of autograd's `is_grads_batched` are plain in all but their memory, which they lack.
    if _modes() or functorch_level() is not None or not _has_memory(first):
        return op
    kernel = _kernels.get((op._qualname, device))
    return op if kernel is None else kernel.direct or op


PLAIN = frozenset((Tensor, torch.nn.Parameter, type(None)))
# By names of this module: looking them up takes as long as calling them.
_is_negated = Tensor.is_neg
_is_tracing = torch._C._is_tracing
_has_memory = torch._C._has_storage
_modes = torch._C._len_torch_dispatch_stack


@functools.cache
def _no_triton() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: `pip install triton` in the version your torch names"
    return None


def announce_slow_path(qualname: str, device: str, reason: str) -> None:
    """Warn once per op and device that a reference serves where a kernel could."""
    if (qualname, device) not in _announced:
        _announced.add((qualname, device))
        warnings.warn(
            f"{qualname} runs its slow reference on {device}: {reason}",
            SlowPathWarning,
            stacklevel=2,
        )


def served_by(qualname: str, device: str) -> str:
    """Name the implementation that serves `qualname` ("rrgkern::name") on `device`."""
    kernel = _kernels.get((qualname, device))
    if kernel is None:
        return "reference"
    reason = kernel.why_not()
    return kernel.name if reason is None else f"reference ({reason})"
