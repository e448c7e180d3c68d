"""Rows taken from a tensor by their places, some of them many times."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.checks import check_derivatives, check_tensors

# The gradient is widened this many elements at a time: 128 MiB of fp32.
WIDENED = 1 << 25


def gather_rows(values: Tensor, places: Tensor) -> Tensor:
    """Take `values[places]`, with the gradients of equal places summed.

    That of `index_select` adds them in the dtype of `values`, and on a GPU in an order that differs
    from run to run. Here they are added in order, in fp32 (fp64 for fp64), and rounded once.
    Derivatives of every order by autograd are served; forward mode and torch.func raise
    NotImplementedError.

    Args:
        values: [P, ...], differentiable.
        places: [N] int64, each in [0, P), in any order.

    Returns:
        [N, ...] in the dtype of `values`.
    """
    check_tensors(values=values, places=places)
    check_derivatives(values=values)
    rows: Tensor = _GatherRows.apply(values, places)
    return rows


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(values)
        return values.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _SumRows.apply(gradient, *ctx.saved_tensors, ctx.rows), None


class _SumRows(torch.autograd.Function):
    """The transpose of `_GatherRows`, and each the other's derivative."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(places)
        total = values.new_zeros(rows, values.shape[1:].numel())
        shape = rows, *values.shape[1:]
        if not values.numel():
            return total.view(shape)
        named, order = places.sort(stable=True)
        ends = torch.searchsorted(named, torch.arange(rows + 1, device=places.device))
        wide = torch.float64 if values.dtype == torch.float64 else torch.float32
        flat = values.reshape(len(places), -1)
        for columns in torch.arange(flat.shape[1]).split(max(1, WIDENED // len(places))):
            block = slice(int(columns[0]), int(columns[-1]) + 1)
            part = flat[:, block].index_select(0, order).to(wide)
            total[:, block] = torch.segment_reduce(
                part, "sum", lengths=ends.diff(), initial=0, unsafe=True
            )
        return total.view(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _GatherRows.apply(gradient, *ctx.saved_tensors), None, None
