"""Choose the device of the kernels' tests: the GPU where there is one."""

from __future__ import annotations

import os

import torch

from rrgkern import csrc

# RRGKERN_TEST_DEVICE=standin rehearses on a CPU what a machine with a GPU does (see standin.py).
DEVICE = os.environ.get("RRGKERN_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


# The instruction sets that csrc's kernels for CPUs can be tested with on this machine.
def isas() -> list[str]:
    """Those that RRGKERN_CPU may name here, the least first."""
    known = ["portable", "avx2", "avx512"]
    asked = os.environ.pop("RRGKERN_CPU", None)
    best = known.index(csrc.load().cpu_isa())
    if asked is not None:
        os.environ["RRGKERN_CPU"] = asked
    return known[: best + 1]


ISAS = isas()
