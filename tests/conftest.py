"""Without a GPU the Triton kernels run in their interpreter; that must be set before import."""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
