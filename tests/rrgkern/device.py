"""Choose the device of the kernels' tests: the GPU where there is one."""

from __future__ import annotations

import os

import torch

# RRGKERN_TEST_DEVICE=standin rehearses on a CPU what a machine with a GPU does (see standin.py).
DEVICE = os.environ.get("RRGKERN_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
