"""Check that tests leave the settings that later tests of the process would inherit."""

from __future__ import annotations

import csv
import locale
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.backends import cuda
from torch.utils import deterministic

# pytest names the running test in the first; PyTorch's compiler sets the others when first used.
NOT_OURS = (
    *("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_", "_TORCHINDUCTOR_"),
    # torch.compile names these where it compiles for a GPU.
    *("TRITON_CACHE_DIR", "TRITON_PTXAS_PATH"),
)
# Settings of torch._dynamo.config that a test may turn; each look takes 2 of 150 microseconds.
DYNAMO = (
    *("recompile_limit", "error_on_recompile", "suppress_errors"),
    *("automatic_dynamic_shapes", "capture_scalar_outputs"),
)
DENORMAL = torch.full((16,), 1e-40, dtype=torch.float32, device="cpu")


def settings() -> dict[str, object]:
    """Reads the global settings of torch, NumPy, locale and process, by name.

    Generators are left out: a test that needs numbers seeds its own.
    """
    read: dict[str, object] = {
        "torch default dtype": torch.get_default_dtype(),
        "torch default device": torch.get_default_device(),
        "torch threads": torch.get_num_threads(),
        "torch grad mode": torch.is_grad_enabled(),
        "torch inference mode": torch.is_inference_mode_enabled(),
        "torch anomaly mode": torch.is_anomaly_enabled(),
        "torch autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "torch autocast dtypes": [torch.get_autocast_dtype(device) for device in ("cpu", "cuda")],
        "torch autocast cache": torch.is_autocast_cache_enabled(),
        "torch deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch deterministic warning": torch.is_deterministic_algorithms_warn_only_enabled(),
        "torch fill of uninitialized memory": deterministic.fill_uninitialized_memory,
        "torch matmul precision": torch.get_float32_matmul_precision(),
        "torch bf16 reductions": torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
        "torch fp16 reductions": torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
        "torch fp16 sums": torch._C._get_cublas_allow_fp16_accumulation(),
        "torch flash SDP": cuda.flash_sdp_enabled(),
        "torch math SDP": cuda.math_sdp_enabled(),
        "torch memory-efficient SDP": cuda.mem_efficient_sdp_enabled(),
        "torch cuDNN SDP": cuda.cudnn_sdp_enabled(),
        "torch reductions of math SDP": cuda.fp16_bf16_reduction_math_sdp_allowed(),
        "torch cuDNN": torch._C._get_cudnn_enabled(),
        "torch cuDNN benchmark": torch._C._get_cudnn_benchmark(),
        "torch cuDNN deterministic": torch._C._get_cudnn_deterministic(),
        "torch oneDNN": torch.backends.mkldnn.enabled,
        "torch denormals": bool(DENORMAL.mul(1.0).any()),
        "torch print options": vars(torch._tensor_str.PRINT_OPTS).copy(),
        "NumPy errors": np.geterr(),
        "NumPy print options": np.get_printoptions(),
        "locale": locale.setlocale(locale.LC_ALL),
        "longest cell of a CSV": csv.field_size_limit(),
        "working directory": os.getcwd(),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "SIGINT": signal.getsignal(signal.SIGINT),
    }
    # Imported here it would take seconds, and rrgkern imports it.
    dynamo = sys.modules.get("torch._dynamo.config")
    if dynamo is not None:
        read.update({f"torch._dynamo.config.{name}": getattr(dynamo, name) for name in DYNAMO})
    environment = os.environ.items()
    read.update({f"environment {k}": v for k, v in environment if not k.startswith(NOT_OURS)})
    return read


@contextmanager
def unchanged(who: str = "the test") -> Iterator[None]:
    """Raises AssertionError at the end where a setting is no longer what it was at the start.

    The settings of torch._dynamo are compared from its import on.
    """
    before = settings()
    yield
    after = settings()
    if before == after:
        return
    names = [
        name
        for name in dict.fromkeys([*before, *after])
        if name in before or not name.startswith("torch._dynamo.")
    ]
    changes = [
        f"{name} was {before.get(name, 'unset')}, is {after.get(name, 'unset')}"
        for name in names
        if before.get(name) != after.get(name)
    ]
    assert not changes, f"{who} leaves global state changed: " + "; ".join(changes)
