"""A launch that is found by its arguments' kinds takes the kernel that Triton would take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    import triton.language as tl


def somewhere(aligned_ptr, anywhere_ptr, size, count, factor: tl.float64, MODE: tl.constexpr):
    raise AssertionError("only its parameters are read")


def test_launches_share_a_kernel_where_triton_would_share_it() -> None:
    pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    from experiments.bound_launch import Bound

    anywhere = {"do_not_specialize_on_alignment": ["anywhere_ptr"]}
    kernel = JITFunction(somewhere, do_not_specialize=["count"], **anywhere)
    backend = make_backend(GPUTarget("cuda", 90, 32))
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    memory = [torch.empty(64), torch.empty(64, dtype=torch.bfloat16)]
    parts = [part[at:] for part in memory for at in (0, 1, 8)]
    numbers = [1, 2, 16, 17, 1 << 31, 1 << 40, (1 << 63) + 16, 0.5]
    calls = [
        *(((a, b, n, m, 0.5), {"MODE": True, "num_warps": 4})
          for a in parts for b in [*parts, None] for n in numbers for m in numbers),
        *(((parts[0], None, 2, 2, 0.5), {"MODE": mode, "num_warps": warps})
          for mode in (True, False, None) for warps in (4, 8)),
    ]  # fmt: skip
    specialised: dict[object, set[str]] = {}
    for arguments, constants in calls:
        _, found, options = binder(*arguments, **constants)
        key = Bound(kernel).key(arguments, constants)
        specialised.setdefault(key, set()).add(repr((found, options)))
    assert all(len(kernels) == 1 for kernels in specialised.values())
    assert len(specialised) < len(calls) / 2
