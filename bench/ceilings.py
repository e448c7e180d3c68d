"""What this GPU can do, measured in the same run: the floor for the time of a kernel."""

from __future__ import annotations

import functools

import torch

from bench.timing import Rounds


@functools.cache
def bytes_per_ms(device: int) -> float:
    """Memory traffic of a large device-to-device copy, read plus written."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device=f"cuda:{device}")
    target = torch.empty_like(source)
    return 2 * source.numel() / _best(lambda s: target.copy_(s), source)


@functools.cache
def flops_per_ms(device: int, dtype: torch.dtype) -> float:
    """Dense matrix product on random operands of `dtype`, 8192 on a side."""
    side = 8192
    operand = torch.randn(side, side, device=f"cuda:{device}").to(dtype)
    return 2 * side**3 / _best(lambda a: a @ a, operand)


def floor_ms(
    device: torch.device, dtype: torch.dtype, bytes_moved: float, flops: float
) -> float | None:
    """The least time for that traffic and that work, whichever takes longer; None on CPU."""
    if device.type != "cuda" or not (bytes_moved or flops):
        return None
    index = device.index or 0
    traffic = bytes_moved / bytes_per_ms(index) if bytes_moved else 0.0
    return max(traffic, flops / flops_per_ms(index, dtype) if flops else 0.0)


def _best(work, operand) -> float:
    rounds = Rounds({"ceiling": work}, [(operand,)])
    for _ in range(15):
        rounds()
    return min(rounds.milliseconds["ceiling"])
