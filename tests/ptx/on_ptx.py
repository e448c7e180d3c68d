"""A pytest plugin: on CPU tensors the Triton kernels run from their PTX, not in the interpreter.

    python -m pytest -p tests.ptx.on_ptx tests/rrgkern/logps

Ops are served by the launchers that a GPU would get, as under TRITON_INTERPRET=1, but a kernel is
compiled for sm_90 (RRGKERN_PTX_TARGET: 80, 90 or 100), as Triton's own binder specialises it, and
its PTX is executed. It needs a process of its own, in which Triton is imported first.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"  # while triton is imported: its compiler is wanted
import triton
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import JITFunction, create_function_from_signature

triton.knobs.runtime.interpret = False
os.environ["TRITON_INTERPRET"] = "1"  # for rrgkern, which serves CPU tensors then

from torch import Tensor  # noqa: E402

from tests.ptx.memory import Memory  # noqa: E402
from tests.ptx.parse import Kernel, parse  # noqa: E402
from tests.ptx.run import Machine  # noqa: E402

TARGET = int(os.environ.get("RRGKERN_PTX_TARGET", "90"))
# Of struct, by the type of an argument as Triton names it.
FORMATS = {"i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B"}
FORMATS |= {"u16": "H", "u32": "I", "u64": "Q", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d"}
# The kernels that ran, and what tests exchange: a change of PTX by kernel, or of what it became.
launched: list[str] = []
exchanged: dict[str, Callable[[str], str]] = {}
altered: dict[str, Callable[[Kernel], Kernel]] = {}
_kernels: dict[str, tuple[Kernel, int]] = {}


def _compiled(jit: JITFunction, signature: Any, constexprs: Any, attrs: Any, options: Any) -> Any:
    """PTX of a kernel, parsed, and the bytes of its shared memory."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    change = exchanged.get(jit.__name__)
    key = repr((jit.cache_key, signature, constexprs, attrs, options))
    if key not in _kernels or change:
        source = ASTSource(jit, signature, constexprs, attrs)
        binary = compile(source, target=GPUTarget("cuda", TARGET, 32), options=options)
        text = binary.asm["ptx"]
        kernel = parse(change(text) if change else text)[binary.metadata.name]
        if change:
            return kernel, binary.metadata.shared
        _kernels[key] = kernel, binary.metadata.shared
    return _kernels[key]


def _run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Launch as Triton does, on a machine instead of a GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    backend = make_backend(GPUTarget("cuda", TARGET, 32))
    binder = create_function_from_signature(self.signature, self.params, backend)
    bound, specialization, options = binder(*args, **kwargs)
    options, signature, constexprs, attrs = self._pack_args(
        backend, kwargs, bound, specialization, options
    )
    kernel, shared = _compiled(self, signature, constexprs, attrs, dict(options.__dict__))
    if alter := altered.get(self.__name__):
        kernel = alter(kernel)
    values = {name: bound[name] for name, kind in signature.items() if kind != "constexpr"}
    memory = Memory([value for value in values.values() if isinstance(value, Tensor)])
    parameters = bytearray(max(v.offset + v.size for v in kernel.parameters.values()))
    # The last two parameters are scratch memory, which no kernel here asks for.
    for name, variable in zip(values, kernel.parameters.values(), strict=False):
        value = values[name]
        if isinstance(value, Tensor):
            data = struct.pack("q", memory.address(value))
        else:
            data = struct.pack(FORMATS[signature[name]], value)
        assert len(data) == variable.size, f"{self.__name__}: {name} has {variable.size} bytes"
        parameters[variable.offset : variable.offset + variable.size] = data
    size = grid(bound) if callable(grid) else grid
    launched.append(self.__name__)
    Machine(kernel, memory, size, [32 * options.num_warps], bytes(parameters), shared).run()
    memory.copy_back()


JITFunction.run = _run
# Nothing runs machine code: the assembler is left out, and what is compiled so is kept apart.
CUDABackend.make_cubin = lambda self, source, *rest: b""
triton.knobs.cache.dir = os.path.join(os.path.dirname(__file__), "../../build/ptx/triton")
