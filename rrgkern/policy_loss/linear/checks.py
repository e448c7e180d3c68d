"""Refusals of per-token and per-sequence arguments that do not fit the rows."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import check_offsets
from rrgkern.policy_loss.spec import PolicyLoss


def check_policy(
    rows: Tensor,
    offsets: Tensor,
    values: dict[str, Tensor | None],
    flags: dict[str, tuple[Tensor | None, str]],
    spec: PolicyLoss,
) -> None:
    """Raise unless everything fits `rows` (any tensor [N, ...] on the right device).

    Args:
        rows: its first dimension is N.
        offsets: [S+1] int64.
        values: floating point; "advantages" and "scale" are [S] or [N], the others [N].
        flags: bool, each with "[S]" or "[N]".
        spec: what it needs must be there.
    """
    n_rows = rows.shape[0]
    if offsets.ndim != 1 or offsets.numel() == 0:
        raise ValueError(f"offsets has shape {tuple(offsets.shape)}; wanted [S+1], at least [0]")
    if offsets.dtype != torch.int64:
        raise TypeError(f"offsets is {offsets.dtype}; wanted torch.int64")
    n_sequences = offsets.numel() - 1
    if n_sequences == 0 and n_rows:
        raise ValueError(f"offsets has shape (1,), so no sequence, and hidden {n_rows} rows")
    _check_device("offsets", offsets, rows)
    for name, tensor in values.items():
        if tensor is None:
            continue
        either = name in ("advantages", "scale")
        lengths = (n_sequences, n_rows) if either else (n_rows,)
        if tensor.ndim != 1 or tensor.numel() not in lengths:
            accepted = " or ".join(f"({length},)" for length in lengths)
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)} and hidden {tuple(rows.shape)}; wanted "
                f"{'[S] or [N]' if either else '[N]'} = {accepted}"
            )
        if not tensor.is_floating_point():
            raise TypeError(f"{name} is {tensor.dtype}; wanted floating point: {name}.float()")
        _check_device(name, tensor, rows)
    for name, (flag, size) in flags.items():
        if flag is None:
            continue
        length = n_sequences if size == "[S]" else n_rows
        if flag.shape != (length,):
            raise ValueError(
                f"{name} has shape {tuple(flag.shape)} and hidden {tuple(rows.shape)}; wanted "
                f"{size} = ({length},)"
            )
        if flag.dtype != torch.bool:
            raise TypeError(f"{name} is {flag.dtype}; wanted torch.bool: pass {name}.bool()")
        _check_device(name, flag, rows)
    if spec.beta and values["ref"] is None:
        raise ValueError(f"beta is {spec.beta} and ref is None; pass ref [N] or set beta to 0")
    check_offsets("offsets", offsets, n_rows, "rows of hidden")


def _check_device(name: str, tensor: Tensor, rows: Tensor) -> None:
    if tensor.device != rows.device:
        raise ValueError(
            f"{name} is on {tensor.device} and hidden on {rows.device}; move them to one device"
        )
