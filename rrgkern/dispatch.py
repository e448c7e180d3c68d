"""Registration of the kernels that serve an op, and the record of who serves what.

An op is born as a `torch.library.custom_op` whose body is the reference. The two functions
here attach faster implementations per device; the PyTorch dispatcher picks one, so no other
file of the library branches on a device.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.library import CustomOpDef

_served: dict[tuple[str, str], str] = {}


def interpreting() -> bool:
    """True when Triton kernels run in its interpreter (TRITON_INTERPRET=1) on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def register_triton(op: CustomOpDef, module: str, launcher: str) -> None:
    """Serve `op` on CUDA with `module.launcher`, and on CPU too under the interpreter.

    The module is imported at the first call: a machine without Triton can import the room.
    Under the interpreter the CPU registration is what lets opcheck and the mutant tests reach
    the kernel itself on a machine without a GPU.
    """

    def kernel(*args: Any) -> Any:
        return getattr(importlib.import_module(module), launcher)(*args)

    kernel.__name__ = launcher
    for device in ("cuda", "cpu") if interpreting() else ("cuda",):
        op.register_kernel(device)(kernel)
        _served[op._qualname, device] = f"triton {module}"


def register_csrc(
    op: CustomOpDef, launcher: Callable[..., Any], devices: Sequence[str], source: str
) -> None:
    """Serve `op` on `devices` with `launcher`, which calls into the compiled extension.

    `source` is the csrc folder, shown by the doctor.
    """
    for device in devices:
        op.register_kernel(device)(launcher)
        _served[op._qualname, device] = f"csrc {source}"


def served_by(qualname: str, device: str) -> str:
    """Which implementation serves the op `qualname` ("rrgkern::name") on `device`."""
    return _served.get((qualname, device), "reference")
