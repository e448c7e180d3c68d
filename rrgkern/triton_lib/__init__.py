"""Device functions of Triton kernels in several rooms, and options of a launch."""

from __future__ import annotations

import torch


def launch_options(warps: int, registers: int | None = None) -> dict[str, int]:
    """Return Triton's options for `warps` of 32 threads, with at most so many registers each.

    A wave of AMD's MI cards has 64 threads and a block at most 1,024: half as many waves hold the
    same threads. Triton's backend for them knows no limit of registers, and refuses the option.
    """
    if torch.version.hip:
        return {"num_warps": max(1, warps // 2)}
    return {"num_warps": warps} if registers is None else {"num_warps": warps, "maxnreg": registers}
