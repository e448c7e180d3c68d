"""Checks that have to read tensor values, and when they may."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn


def values_may_be_read(tensor: Tensor) -> bool:
    """True on the CPU; on other devices, where reading waits for the device, only if asked for.

    RRGKERN_CHECK=1 asks. Under torch.compile the answer is False: a value has no place in a graph.
    """
    if torch.compiler.is_compiling():
        return False
    return tensor.device.type == "cpu" or os.environ.get("RRGKERN_CHECK") == "1"


def check_tensors(*, optional: Mapping[str, object] | None = None, **required: object) -> None:
    """Raise TypeError for the first argument that is no tensor, and say what to pass.

    Args:
        optional: arguments by name that may be None.
        required: all others.
    """
    given = {name: value for name, value in (optional or {}).items() if value is not None}
    for name, value in (required | given).items():
        if isinstance(value, Tensor):
            continue
        seen = "None" if value is None else f"a {type(value).__name__}"
        fix = f"torch.as_tensor({name})"
        if isinstance(value, nn.Module):
            fix = f"{name}.weight"
        raise TypeError(f"{name} is {seen}; wanted a torch.Tensor: pass {fix}")


def check_offsets(name: str, offsets: Tensor, total: int, counted: str) -> None:
    """Raise ValueError unless `offsets` runs from 0 to `total` without going down.

    Args:
        name: what the caller calls the argument.
        offsets: [S+1] int64.
        total: the number of `counted` things that the offsets divide.
        counted: "tokens", "sequences": for the message.
    """
    check_rising(name, offsets)
    if not values_may_be_read(offsets):
        return
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0 or last != total:
        raise ValueError(
            f"{name} runs from {first} to {last}; it must start at 0 and end at the number of "
            f"{counted}, {total}"
        )


def check_rising(name: str, offsets: Tensor) -> None:
    """Raise ValueError for offsets [S+1] int64 without an element, or that go down."""
    if offsets.ndim != 1 or offsets.numel() == 0:
        raise ValueError(
            f"{name} has shape {tuple(offsets.shape)}; wanted one axis and at least one element"
        )
    if not values_may_be_read(offsets):
        return
    # Neighbours are compared: a difference of two int64 may wrap around and look positive.
    down = offsets[1:] < offsets[:-1]
    if bool(down.any()):
        at = int(down.nonzero()[0])
        raise ValueError(
            f"{name} goes down after position {at} ({int(offsets[at])} to {int(offsets[at + 1])}); "
            "it must be a running sum of lengths"
        )
