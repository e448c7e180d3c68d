"""Check that a test leaves the settings that later tests of the process would inherit."""

from __future__ import annotations

import csv
import locale
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# pytest names the running test in the first; PyTorch's compiler sets the others when first used.
NOT_OURS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_", "_TORCHINDUCTOR_")


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
        "torch deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch deterministic warning": torch.is_deterministic_algorithms_warn_only_enabled(),
        "torch matmul precision": torch.get_float32_matmul_precision(),
        "torch oneDNN": torch.backends.mkldnn.enabled,
        "torch denormals": bool(torch.full((16,), 1e-40, device="cpu").mul(1.0).any()),
        "torch print options": vars(torch._tensor_str.PRINT_OPTS).copy(),
        "NumPy errors": np.geterr(),
        "NumPy print options": np.get_printoptions(),
        "locale": locale.setlocale(locale.LC_ALL),
        "longest cell of a CSV": csv.field_size_limit(),
        "working directory": os.getcwd(),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "SIGINT": signal.getsignal(signal.SIGINT),
    }
    environment = os.environ.items()
    read.update({f"environment {k}": v for k, v in environment if not k.startswith(NOT_OURS)})
    return read


@contextmanager
def unchanged() -> Iterator[None]:
    """Raises AssertionError at the end where a setting is no longer what it was at the start."""
    before = settings()
    yield
    after = settings()
    names = list(dict.fromkeys([*before, *after]))
    changes = [
        f"{name} was {before.get(name, 'unset')}, is {after.get(name, 'unset')}"
        for name in names
        if before.get(name) != after.get(name)
    ]
    assert not changes, "the test leaves global state changed: " + "; ".join(changes)
