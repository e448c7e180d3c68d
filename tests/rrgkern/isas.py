"""The instruction sets that csrc's kernels for CPUs can be tested with on this machine."""

from __future__ import annotations

import os

from rrgkern import csrc


def isas() -> list[str]:
    """Those that RRGKERN_CPU may name here, the least first."""
    known = ["portable", "avx2", "avx512"]
    asked = os.environ.pop("RRGKERN_CPU", None)
    best = known.index(csrc.load().cpu_isa())
    if asked is not None:
        os.environ["RRGKERN_CPU"] = asked
    return known[: best + 1]


ISAS = isas()
