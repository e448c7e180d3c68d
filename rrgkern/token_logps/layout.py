"""How a kernel walks the rows of a tensor of logits without copying it."""

from __future__ import annotations

from torch import Tensor

BYTES_PER_LOAD = 16


def as_rows(logits: Tensor) -> Tensor:
    """[N, V] where the rows are evenly spaced, [B, L, V] where `reshape` would have to copy."""
    evenly_spaced = logits.ndim == 3 and logits.stride(0) == logits.stride(1) * logits.shape[1]
    if logits.ndim == 3 and not evenly_spaced:
        return logits
    return logits.reshape(-1, logits.shape[-1])


def row_walk(logits: Tensor) -> tuple[int, int, int, int]:
    """(batch stride, row stride, column stride, rows per batch) of [N, V] or [B, L, V].

    Row r begins at (r // rows per batch) * batch stride + (r % rows per batch) * row stride.
    """
    batch = logits.stride(0) if logits.ndim == 3 else 0
    return batch, logits.stride(-2), logits.stride(-1), max(1, logits.shape[-2])


def columns_per_load(logits: Tensor) -> int:
    """Columns of a 128-bit load, or 1 where rows do not begin at a multiple of 128 bits."""
    size = logits.element_size()
    offsets = (logits.data_ptr(), *(stride * size for stride in logits.stride()[:-1]))
    if logits.stride(-1) != 1 or any(offset % BYTES_PER_LOAD for offset in offsets):
        return 1
    return BYTES_PER_LOAD // size
