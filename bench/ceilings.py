"""Measure what this device can do in the same run: the floor of kernel times."""

from __future__ import annotations

import functools

import torch

from bench.batch import DRY
from bench.timing import Rounds


@functools.cache
def bytes_per_ms(device: torch.device) -> float:
    """Memory traffic of a large copy on the device, read plus written."""
    source = torch.empty(_size(1 << 30, 1 << 27, device), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / _best(lambda s: target.copy_(s), source)


@functools.cache
def flops_per_ms(device: torch.device, dtype: torch.dtype) -> float:
    """Dense matrix product on random square operands of `dtype`."""
    side = _size(8192, 1024, device)
    operand = torch.randn(side, side, device=device).to(dtype)
    return 2 * side**3 / _best(lambda a: a @ a, operand)


def floor_ms(
    device: torch.device, dtype: torch.dtype, bytes_moved: float, flops: float
) -> float | None:
    """The least time for that traffic and that work, whichever takes longer; None for neither."""
    if not (bytes_moved or flops):
        return None
    traffic = bytes_moved / bytes_per_ms(device) if bytes_moved else 0.0
    return max(traffic, flops / flops_per_ms(device, dtype) if flops else 0.0)


def _size(on_cuda: int, on_cpu: int, device: torch.device) -> int:
    if DRY:
        return 64
    return on_cuda if device.type == "cuda" else on_cpu


def _best(work, operand) -> float:
    rounds = Rounds({"ceiling": work}, [(operand,)])
    for _ in range(15):
        rounds()
    return min(rounds.milliseconds["ceiling"])
