"""Place a network on a device and cut reports into batches for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from rrgclinical.common.errors import UserError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

# Padded tokens a batch. On two CPU cores 8 reports of 118 tokens went 1.4 times as fast as 64
# in fp32; a GPU needs large batches to be busy (its best value is unmeasured).
CPU_TOKENS = 1024
GPU_TOKENS = 32768


@dataclass(frozen=True)
class Placement:
    """Device and dtype of an encoder, and the largest padded batch in tokens."""

    device: torch.device
    dtype: torch.dtype
    token_budget: int


def place_network(
    owner: str, device: str | torch.device, dtype: str, token_budget: int | None
) -> Placement:
    """Check where and how a network runs.

    Args:
        owner: name of the backend, for messages.
        device: where the network runs.
        dtype: "fp32" or "bf16".
        token_budget: by default 1024 on a CPU, 32768 elsewhere.

    Raises:
        UserError: a dtype, budget or device that cannot be.
    """
    if dtype not in DTYPES:
        raise UserError(f"{owner}: dtype {dtype!r}; choose {' or '.join(DTYPES)}")
    if token_budget is not None and token_budget < 1:
        raise UserError(f"{owner}: token_budget is {token_budget}; wanted 1 or more")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"{owner}: device {str(device)!r} is not there; use cpu") from error
    default = CPU_TOKENS if where.type == "cpu" else GPU_TOKENS
    return Placement(where, DTYPES[dtype], token_budget or default)


def padded_rows(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of ids on the right.

    Returns ids and mask, int64 `[rows, longest]` each, on the CPU.
    """
    padded = torch.full((len(rows), max(map(len, rows))), pad_id)
    mask = torch.zeros_like(padded)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
    return padded, mask


def length_sorted(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices into `lengths`, longest first, cut so that rows x longest <= `budget`.

    One that is longer than the budget is a batch of its own. Equal lengths keep their order.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        rows = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows
