"""Launches to compile ahead of time: sums over hidden states of the target widths."""

from __future__ import annotations

import torch

from rrgkern.logps.head import Head
from rrgkern.logps.online_softmax import RowSums, SoftmaxStats, stats_dtype
from rrgkern.policy_loss.linear.gradients import Directions
from rrgkern.policy_loss.linear.triton_kernels import direction, rescale, scale
from tests.rrgkern.aot.harness import Case, per_row

VOCABULARY = 151936


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def rescaling(width: int, dtype: torch.dtype, rows: int = 2048) -> None:
    wide = stats_dtype(dtype)
    rescale(meta(rows, width, dtype=wide), per_row(rows, wide))


def directing(width: int, dtype: torch.dtype, rows: int = 8192) -> None:
    wide = stats_dtype(dtype)
    head = Head(meta(VOCABULARY, width, dtype=dtype), None, 0.7, 0.0, dtype)
    stats = SoftmaxStats(*(per_row(rows, wide) for _ in range(4)))
    sums = RowSums.empty(meta(0, dtype=dtype), rows, wide)
    found = Directions(stats, sums, meta(rows, width, dtype=wide))
    targets, out = per_row(rows, torch.int64), meta(rows, width, dtype=dtype)
    direction(found, targets, head, per_row(rows, wide), out)


def upstream_gradient(dtype: torch.dtype, begin: int) -> torch.Tensor:
    """The gradient of one loss of a stack, 0-d, which lies where a slice may."""
    return per_row(begin, stats_dtype(dtype))[0]


def scaling(width: int, dtype: torch.dtype, rows: int = VOCABULARY) -> None:
    values = meta(rows, width, dtype=dtype)
    scale(values, upstream_gradient(dtype, rows), values)


def scaling_a_copy(width: int, dtype: torch.dtype, rows: int = VOCABULARY) -> None:
    values = meta(rows, width, dtype=dtype)
    scale(values, upstream_gradient(dtype, rows), torch.empty_like(values))


BF16, FP64 = torch.bfloat16, torch.float64
LAUNCHES = [
    *((rescaling, 2048, BF16), (rescaling, 2047, BF16), (rescaling, 2048, FP64)),
    *((directing, 2048, BF16), (directing, 3584, BF16), (directing, 2047, BF16)),
    *((directing, 2048, FP64), (scaling, 2048, BF16), (scaling, 2048, FP64)),
    (scaling_a_copy, 2048, BF16),
]
CASES = {
    f"{call.__name__}, H = {width}, {str(dtype).removeprefix('torch.')}": Case(
        lambda call=call, width=width, dtype=dtype: call(width, dtype),
        streaming=width % 16 == 0 and dtype != FP64,
    )
    for call, width, dtype in LAUNCHES
}
