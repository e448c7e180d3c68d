"""Remembers which logits hold their gradient, so that a second use raises instead of reading it.

The record hangs on the tensor that owns the memory and names its version: whoever writes new logits
there moves the version on, and the record is void.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

ATTRIBUTE = "_rrgkern_overwritten"


@dataclass
class _Record:
    version: int
    places: set[tuple[int, int]] = field(default_factory=set)


@contextmanager
def overwriting(logits: Tensor) -> Iterator[None]:
    """The body writes a gradient over `logits` and moves their version on."""
    owner = _owner(logits)
    record: _Record | None = getattr(owner, ATTRIBUTE, None)
    if record is None or record.version != owner._version:
        record = _Record(owner._version)
    yield
    record.version = owner._version
    record.places.add(_place(logits))
    setattr(owner, ATTRIBUTE, record)


def check_not_overwritten(logits: Tensor) -> None:
    """Raise ValueError where an earlier call left a gradient in the memory of `logits`."""
    owner = _owner(logits)
    record: _Record | None = getattr(owner, ATTRIBUTE, None)
    if record is None or owner.is_inference() or record.version != owner._version:
        return
    first, last = _place(logits)
    if any(first <= end and begin <= last for begin, end in record.places):
        raise ValueError(
            "logits holds the gradient that policy_loss_from_logits(inplace=True) left there; "
            "compute the logits anew, or pass inplace=False to the earlier call"
        )


def _owner(logits: Tensor) -> Tensor:
    return logits if logits._base is None else logits._base


def _place(logits: Tensor) -> tuple[int, int]:
    """The first and the last element of the memory that they lie in."""
    first = int(logits.storage_offset())
    extents = zip(logits.shape, logits.stride(), strict=True)
    return first, first + int(sum((size - 1) * stride for size, stride in extents))
