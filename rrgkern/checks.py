"""Checks that have to read tensor values, and when they may."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

# A row this far from length 1 is still a unit row: bf16 rounds a length to 1 ± 0.004.
UNIT_TOLERANCE = 0.01
# Of so many offsets a list is made sooner than an operation on them is.
FEW = 1024


def values_may_be_read(tensor: Tensor) -> bool:
    """Return True on the CPU, elsewhere under RRGKERN_CHECK=1 only: reading waits for the device.

    Under torch.compile the answer is False: a value has no place in a graph, and a FakeTensor none
    at all.
    """
    if torch.compiler.is_compiling() or isinstance(tensor, FakeTensor):
        return False
    return tensor.device.type == "cpu" or os.environ.get("RRGKERN_CHECK") == "1"


def check_tensors(
    *,
    optional: Mapping[str, object] | None = None,
    gathered: Sequence[str] = (),
    **required: object,
) -> None:
    """Raise TypeError for an argument that is no plain tensor, and say what to pass.

    Args:
        optional: arguments by name that may be None.
        gathered: names of those that may be a DTensor.
        required: all others.
    """
    present = {name: value for name, value in (optional or {}).items() if value is not None}
    for name, value in (required | present).items():
        if type(value) is Tensor and value.layout is torch.strided and not value.is_nested:
            continue
        if isinstance(value, Tensor):
            if is_sharded(value) and name not in gathered:
                raise TypeError(
                    f"{name} is a DTensor, wanted this rank's own rows: pass {name}.to_local() or "
                    f"{name}.full_tensor()"
                )
            if value.layout != torch.strided or value.is_nested:
                raise TypeError(
                    f"{name} is {'nested' if value.is_nested else value.layout}, wanted a dense "
                    "tensor: pass one that is padded, or packed with offsets"
                )
            continue
        kind = "None" if value is None else f"a {type(value).__name__}"
        fix = f"torch.as_tensor({name})"
        if isinstance(value, nn.Module):
            fix = f"{name}.weight"
        raise TypeError(f"{name} is {kind}; wanted a torch.Tensor: pass {fix}")


def check_record(name: str, value: object, kind: type[tuple[Any, ...]]) -> None:
    """Raise TypeError for what is no `kind`, a NamedTuple of tensors, or holds something else.

    A field with a default may be None.
    """
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    if not isinstance(value, kind):
        shown = "None" if value is None else f"a {type(value).__name__}"
        raise TypeError(f"{name} is {shown}; wanted {kind.__name__}({', '.join(fields)})")
    for field, tensor in zip(fields, value, strict=True):
        if tensor is not None or field not in kind._field_defaults:  # type: ignore[attr-defined]
            check_tensors(**{f"{name}.{field}": tensor})


def check_flags(**flags: object) -> None:
    """Raise TypeError for an option that is neither True nor False."""
    if torch.compiler.is_compiling():
        return
    for name, value in flags.items():
        if value is not True and value is not False and type(value).__name__ not in _NUMPY_BOOL:
            shown = (
                repr(value) if isinstance(value, str | int | None) else f"a {type(value).__name__}"
            )
            raise TypeError(f"{name} is {shown}; wanted True or False")


_NUMPY_BOOL = ("bool", "bool_")  # NumPy 2 and 1


def is_sharded(tensor: object) -> bool:
    """Recognise a DTensor without importing torch.distributed.tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def check_numbers(row_wise: str, **numbers: object) -> None:
    """Raise TypeError for a number that is none, a tensor of several, or learned.

    Args:
        row_wise: what a caller with one number for each row does.
    """
    if torch.compiler.is_compiling():
        return
    for name, value in numbers.items():
        _check_single(name, value, f" for all: {row_wise}")
        if getattr(value, "requires_grad", False):
            raise TypeError(
                f"{name} requires a gradient, which it is not given: pass {name}.item(), or learn "
                f"it outside of the call: {row_wise}"
            )
        if value is not None or name not in _MAY_BE_NONE:
            check_number(name, value)


_MAY_BE_NONE = ("softcap",)


def check_number(name: str, value: object) -> None:
    """Raise TypeError for what is not one number: a text, None, several."""
    if torch.compiler.is_compiling():
        return
    _check_single(name, value)
    if not hasattr(value, "__float__") and not hasattr(value, "__sym_float__"):
        shown = repr(value) if isinstance(value, str | None) else f"a {type(value).__name__}"
        raise TypeError(f"{name} is {shown}; wanted one number")


def _check_single(name: str, value: object, purpose: str = "") -> None:
    if getattr(value, "ndim", 0):
        shape = list(value.shape)  # type: ignore[attr-defined]
        raise TypeError(f"{name} has shape {shape}, wanted one number{purpose}")


def check_constants(**constants: Tensor | None) -> None:
    """Raise NotImplementedError for the first argument that requires a gradient it will not get."""
    if not torch.is_grad_enabled():
        return
    for name, value in constants.items():
        if value is not None and value.requires_grad:
            raise NotImplementedError(
                f"{name} requires a gradient, which this function does not give it: pass "
                f"{name}.detach()"
            )


def check_derivatives(**differentiable: Tensor | None) -> None:
    """Raise NotImplementedError for the first argument in a derivative that is not served.

    The ops have a backward only. In forward mode PyTorch would go on with the tangent left out, or
    with zeros; under torch.func it knows no rule for a custom op's backward.
    """
    if forward_ad._current_level >= 0:
        for name, value in differentiable.items():
            if value is not None and forward_ad.unpack_dual(value).tangent is not None:
                raise NotImplementedError(
                    f"{name} carries a tangent of forward-mode differentiation, which rrgkern's "
                    "losses and log-probabilities lack: use backward() or torch.autograd.grad"
                )
    if torch.compiler.is_compiling() or functorch_level() is None:
        return
    for name, value in differentiable.items():
        if value is not None and _in_torch_func(value):
            raise NotImplementedError(
                f"{name} is differentiated by torch.func, which rrgkern's losses and "
                "log-probabilities do not serve: use torch.autograd.grad or backward()"
            )


# By a name of this module: looking it up takes as long as calling it.
functorch_level = torch._C._functorch.peek_interpreter_stack


def _in_torch_func(tensor: Tensor) -> bool:
    """True under grad, vjp and what is made of them, also around or within vmap."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_gradtrackingtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def check_device(name: str, tensor: Tensor | None, other_name: str, other: Tensor) -> None:
    """Raise ValueError for a tensor that lies on another device than `other`."""
    if tensor is not None and tensor.device != other.device:
        raise ValueError(
            f"{name} is on {tensor.device} and {other_name} on {other.device}; move them to one "
            "device"
        )


def check_layout(
    name: str,
    tensor: Tensor,
    dtypes: Sequence[torch.dtype],
    shape: Sequence[int],
    other_name: str,
    other: Tensor,
) -> None:
    """Raise TypeError for none of `dtypes`, ValueError for another shape or device than `other`.

    A size of -1 is any size.
    """
    actual = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    if tensor.dtype not in dtypes:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} is {actual}, wanted {names}")
    sizes = zip(shape, tensor.shape, strict=False)
    if tensor.ndim != len(shape) or any(want not in (-1, have) for want, have in sizes):
        expected = ["any" if size == -1 else size for size in shape]
        raise ValueError(f"{name} is {actual}, wanted shape {expected}")
    check_device(name, tensor, other_name, other)


def check_begins(
    name: str, offsets: Tensor, symbol: str, anchor: str, rows: Tensor, count: int | None = None
) -> None:
    """Raise TypeError or ValueError unless offsets are int64, of one axis and beside `rows`.

    Args:
        name, symbol: of the offsets in a message: "offsets" and "S+1".
        anchor, rows: name and tensor of what they divide.
        count: N, unless offsets without a sequence are fine.
    """
    if offsets.ndim != 1 or offsets.numel() == 0:
        raise ValueError(
            f"{name} has shape {tuple(offsets.shape)}; wanted [{symbol}], at least [0]"
        )
    if offsets.dtype != torch.int64:
        raise TypeError(f"{name} is {offsets.dtype}; wanted torch.int64")
    if offsets.numel() == 1 and count:
        raise ValueError(
            f"{name} has shape (1,), so no sequence, and {anchor} {tuple(rows.shape)}; "
            f"wanted [{symbol}] that ends at N"
        )
    check_device(name, offsets, anchor, rows)


def check_offsets(name: str, offsets: Tensor, total: int, counted: str) -> None:
    """Raise ValueError unless `offsets` runs from 0 to `total` without going down.

    Args:
        name: what the caller calls the argument.
        offsets: [S+1] int64.
        total: the number of `counted` things that the offsets divide.
        counted: "tokens", "sequences": for the message.
    """
    may_be_read = values_may_be_read(offsets)
    if may_be_read and offsets.ndim == 1 and 0 < offsets.numel() <= FEW:
        values = offsets.tolist()
        if values[0] == 0 and values[-1] == total and values == sorted(values):
            return
    check_rising(name, offsets)
    if not may_be_read:
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


def check_range(name: str, values: Tensor, low: int, high: int | Tensor) -> None:
    """Raise ValueError unless low <= value <= high everywhere; on a GPU, a device assertion."""
    fine = (values >= low) & (values <= high)
    if not values_may_be_read(values):
        torch._assert_async(fine.all(), f"{name} is out of range")
    elif not fine.all():
        row = int((~fine).nonzero()[0])
        top = int(high[row]) if isinstance(high, Tensor) else high
        raise ValueError(f"{name} is {int(values[row])} at row {row}, wanted {low} to {top}")


def check_unit_rows(name: str, embedding: Tensor, used: Tensor | None = None) -> None:
    """Raise ValueError unless each row (of those `used`) is of length 1 ± 0.01.

    A row with NaN is not. On a GPU it is a device assertion, or this error under RRGKERN_CHECK=1.
    """
    length = torch.linalg.vector_norm(embedding, dim=-1)
    fine = (length - 1).abs() <= UNIT_TOLERANCE
    if used is not None:
        fine |= ~used
    if not values_may_be_read(embedding):
        torch._assert_async(fine.all(), f"{name} holds a row that is no unit vector")
    elif not fine.all():
        row = int((~fine).nonzero()[0])
        state = f"of length {length[row]:.4g}" if length[row].isfinite() else "NaN or infinite"
        raise ValueError(
            f"{name} row {row} is {state}, wanted a unit vector: divide each row by its length, "
            "and embed no empty text"
        )


def check_weights(name: str, weight: Tensor) -> None:
    """Raise ValueError unless every weight is finite and not negative; on a GPU, an assertion."""
    fine = weight.isfinite() & (weight >= 0)
    if not values_may_be_read(weight):
        torch._assert_async(fine.all(), f"{name} holds a weight that is negative or not finite")
    elif not fine.all():
        row, column = (~fine).nonzero()[0].tolist()
        raise ValueError(
            f"{name} is {float(weight[row, column])} at [{row}, {column}], wanted a finite weight "
            "of at least 0"
        )
