"""Count kernels in the code that inductor writes for an absent H100.

`step_kernels(policy, request)` traces a captured step of decoding, its products of one input
merged, and has inductor write it for CUDA. Nothing is compiled or run: a graph that AOTAutograd
made for a CPU is told that its tensors lie on a GPU. It asks much of what PyTorch keeps to itself,
so it is for a bench alone. Shapes are static; an operator that inductor leaves to PyTorch or to
this library, as attention is, counts as one kernel. fp32 copies that a GPU makes none of (the
head's weight) are made before the step.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx, config
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_map_only

from rrgpolicy.model.fewer_kernels import OPTIONS, with_sums
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout import SamplingRequest, generate

DEVICE = torch.device("cuda:0")
H100 = SimpleNamespace(
    **{"name": "H100", "major": 9, "minor": 0, "multi_processor_count": 132, "gcnArchName": ""},
    **{"max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024, "warp_size": 32},
    **{"regs_per_multiprocessor": 65536, "total_memory": 80 << 30, "L2_cache_size": 50 << 20},
    **{"shared_memory_per_block": 48 << 10, "shared_memory_per_block_optin": 227 << 10},
)
# What inductor asks of a device, and of Triton's driver.
OF_DEVICE: dict[str, Any] = {
    "torch.cuda.get_device_properties": H100,
    "torch.cuda.get_device_capability": (9, 0),
    "torch.cuda.current_device": 0,
    "torch._dynamo.device_interface.CudaInterface.get_device_properties": H100,
    "torch._dynamo.device_interface.CudaInterface.Worker.get_device_properties": H100,
    "torch.utils._triton.triton_hash_with_backend": "",
    "torch._inductor.scheduler.has_triton": True,
}
# Where a step chooses the attention; on a CPU it is the reference.
ATTENTION = "decode_unchecked"
KERNEL = re.compile(r"^ *(?:buf\d+ = )?(?:\w+\.run\(|extern_kernels\.\w+\(|torch\.ops\.)", re.M)


class _Written(Exception):
    """The code is written; there is nothing to run."""


class WrittenStep:
    """Stand where a compiled step does; the first call writes its code."""

    on = True

    def __init__(self) -> None:
        self.code = ""

    def __call__(self, method: Any, tensor: Tensor) -> Tensor:
        if not self.code:
            step = torch.compile(
                method.__func__, fullgraph=True, dynamic=False, backend=self._backend
            )
            try:
                step(method.__self__, tensor)
            except torch._dynamo.exc.BackendCompilerFailed:
                if not self.code:
                    raise
        out: Tensor = method(tensor)
        return out

    def _backend(self, graph: Any, inputs: Any) -> Any:
        # padding is chosen by the time that products take
        with config.patch(shape_padding=False, **OPTIONS):
            return compile_fx.compile_fx(with_sums(graph), inputs, inner_compile=self._write)

    def _write(self, graph: Any, inputs: Any, **_: Any) -> Any:
        mode: Any = detect_fake_mode(inputs)

        def there(x: Tensor) -> Tensor:
            with mode:
                return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=DEVICE)

        def on_device(x: Any) -> Any:
            return DEVICE if isinstance(x, torch.device) else x

        for node in graph.graph.nodes:
            node.args = map_aggregate(node.args, on_device)
            node.kwargs = map_aggregate(node.kwargs, on_device)
            if "val" in node.meta:
                node.meta["val"] = tree_map_only(Tensor, there, node.meta["val"])
        graph.recompile()
        inputs = tree_map_only(Tensor, there, inputs)
        with mode, V.set_fake_mode(mode):
            compile_fx.view_to_reshape(graph)
            compile_fx._recursive_record_original_output_strides(graph)
            compile_fx._recursive_post_grad_passes(graph, is_inference=True)
            lowered = GraphLowering(graph, inputs, is_inference=True)
            quiet = V.set_debug_handler(mock.MagicMock())
            with V.set_graph_handler(lowered), V.set_extern_kernel_nodes([]), quiet:
                lowered.run(*inputs)
                self.code = lowered.codegen()[0].value
        raise _Written


def guard_devices() -> None:
    """Have PyTorch's own guard of "meta" tensors guard CUDA's, where it was built without CUDA."""
    c10 = ctypes.CDLL(str(next(Path(torch.__file__).parent.glob("lib/libc10.so"))))
    guards = (ctypes.c_void_p * 15).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[1] is None:  # c10::DeviceType: CUDA is 1, Meta 14
        guards[1] = guards[14]


@contextmanager
def as_of_an_h100() -> Iterator[None]:
    """Answer for a device inside; attention is this library's operator."""
    rollout = sys.modules[sys.modules[generate.__module__].Decoder.__module__]
    operator = torch.ops.rrgkern.shared_prefix_decode
    guard_devices()
    with ExitStack() as stack:
        for name, answer in OF_DEVICE.items():
            stack.enter_context(mock.patch(name, return_value=answer))
        stack.enter_context(mock.patch.object(rollout, ATTENTION, lambda step: operator(*step)))
        yield


def step_kernels(policy: Policy, request: SamplingRequest) -> int:
    """Count the kernels of a step, draw and ends included."""
    written: Any = WrittenStep()
    torch._dynamo.reset()
    with as_of_an_h100():
        generate(policy, request, written)
    call = written.code[written.code.index("def call(") :]
    return len(KERNEL.findall(call))
