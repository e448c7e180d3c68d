"""Bound a kernel's error: no further from the truth than twice eager PyTorch, row by row.

A tolerance picked by hand either fails on another device or lets a wrong kernel through. Here
the yardstick is the error that plain PyTorch makes in the same dtype on the same input.
"""

from __future__ import annotations

import torch
from torch import Tensor


def assert_close_to_truth(
    actual: Tensor,
    eager_same_dtype: Tensor,
    truth_fp64: Tensor,
    *,
    factor: float = 2.0,
    tiny: float | Tensor | None = None,
) -> None:
    """Raise AssertionError unless ‖actual − truth‖ ≤ factor · ‖eager − truth‖ + tiny in each row.

    A row is everything along the last axis of a matrix or more, and one element of a vector.
    Each row is judged alone: a few lost rows cannot hide in a mean, and a zero gradient, a half
    scale or a flipped sign fails in the first row that has one.

    Args:
        actual: what the kernel returned, any float dtype, any shape.
        eager_same_dtype: the same quantity by eager PyTorch, in the dtype of `actual`.
        truth_fp64: the same quantity computed in float64 from the same inputs.
        factor: how many eager errors are allowed.
        tiny: absolute term, a number or one per row. By default one rounding to the dtype of
            `actual`: eps · ‖truth row‖. Where a result is the small difference of large numbers
            (log-probabilities near 0), eager may be exact by luck: pass eps times the larger one.

    Infinite entries of the truth must be met exactly; a NaN in the truth is refused, since
    nothing can be compared with it.
    """
    assert truth_fp64.dtype == torch.float64, f"truth is {truth_fp64.dtype}, wanted float64"
    assert actual.dtype == eager_same_dtype.dtype, (
        f"kernel returned {actual.dtype}, eager {eager_same_dtype.dtype}: the yardstick must have "
        "the dtype of the kernel"
    )
    assert actual.shape == eager_same_dtype.shape == truth_fp64.shape, (
        f"shapes differ: kernel {tuple(actual.shape)}, eager {tuple(eager_same_dtype.shape)}, "
        f"truth {tuple(truth_fp64.shape)}"
    )
    truth = _rows(truth_fp64)
    assert not truth.isnan().any(), "the truth holds NaN: nothing can be compared with it"
    got, eager = _rows(actual), _rows(eager_same_dtype)

    infinite = truth.isinf()
    missed = (infinite & (got != truth)).nonzero()
    assert not len(missed), f"truth is infinite at {missed[0].tolist()}, kernel is not"
    got_error = _norm(torch.where(infinite, 0.0, got - truth))
    eager_error = _norm(torch.where(infinite, 0.0, eager - truth)).nan_to_num(nan=0.0, posinf=0.0)
    if tiny is None:
        tiny = torch.finfo(actual.dtype).eps * _norm(truth.masked_fill(infinite, 0.0))
    elif isinstance(tiny, Tensor):
        tiny = tiny.to(device=truth.device, dtype=torch.float64).reshape(-1)
    bound = factor * eager_error + tiny

    # `not <=` rather than `>`: a NaN error must fail too.
    bad = (~(got_error <= bound)).nonzero().flatten()
    if len(bad):
        excess = (got_error - bound)[bad].nan_to_num(nan=torch.inf)
        row = int(bad[excess.argmax()])
        raise AssertionError(
            f"{len(bad)} of {len(truth)} rows are too far from the truth; worst is row {row}: "
            f"kernel error {got_error[row]:.3e}, eager error {eager_error[row]:.3e}, "
            f"allowed {bound[row]:.3e}, norm of the truth {_norm(truth)[row]:.3e}"
        )


def _rows(tensor: Tensor) -> Tensor:
    """[rows, width] in float64 on the CPU; elements of a vector or scalar are rows of width 1."""
    tensor = tensor.detach().cpu().double()
    width = tensor.shape[-1] if tensor.ndim > 1 else 1
    return tensor.reshape(tensor.numel() // width if width else 0, width)


def _norm(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=-1)
