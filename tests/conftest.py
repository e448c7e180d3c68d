"""Without a GPU the Triton kernels run in their interpreter, which is set before import."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

# Time limits per example fail on a busy machine, and nowhere else.
same_cases = os.environ.get("RRGKERN_SAME_CASES") == "1"
settings.register_profile("project", deadline=None, derandomize=same_cases)
settings.load_profile("project")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
