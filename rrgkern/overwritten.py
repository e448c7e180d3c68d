"""Remember which parts of a tensor hold a gradient that was written over the logits.

Autograd counts the writes to a tensor as a whole, so a call on one half of the logits would pass
for a change of the other half. Here each part has its place, and a write by anybody else is noticed
all the same: it moves the version on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

ATTRIBUTE = "_rrgkern_overwritten"
Place = tuple[int, int]


@dataclass
class _Record:
    """Places written so far; the owner's version when the last of them was."""

    version: int
    places: set[Place] = field(default_factory=set)

    def meets(self, place: Place) -> bool:
        first, last = place
        return any(first <= end and begin <= last for begin, end in self.places)


class HeldLogits:
    """The logits of a call in place, from its forward to its backward.

    Save `logits.data` for the backward: it is apart from autograd and from the count of writes, and
    `check` takes its part.
    """

    def __init__(self, logits: Tensor) -> None:
        owner = _owner(logits)
        record: _Record | None = getattr(owner, ATTRIBUTE, None)
        if record is None or record.version != owner._version:
            record = _Record(owner._version)
            setattr(owner, ATTRIBUTE, record)
        self._record, self._place, self._written = record, _place(logits), False
        # Under a checkpoint, which keeps saved tensors elsewhere, the owner must not be kept.
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
        self._owner: Callable[[], Tensor | None] = weakref.ref(owner) if hooked else lambda: owner

    def check(self) -> None:
        """Raise RuntimeError where somebody else has written over the logits since."""
        owner = self._owner()
        if owner is None:  # a checkpoint has made them anew
            return
        if self._record.version != owner._version:
            raise RuntimeError(
                "the logits of policy_loss_from_logits(inplace=True) have been modified by an "
                "inplace operation before the backward: leave them alone, or pass inplace=False"
            )
        if not self._written and self._record.meets(self._place):
            raise RuntimeError(
                "the logits of policy_loss_from_logits(inplace=True) overlap, or lie between the "
                "rows of, others that were modified by an inplace operation of such a call before "
                "the backward: pass a range y[a:b] of its own to each call, or inplace=False"
            )

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """The body writes a gradient over the memory; the owner's version moves on."""
        yield
        self._written = True
        owner = self._owner()
        if owner is not None:
            torch.autograd.graph.increment_version(owner)
            self._record.version = owner._version
            self._record.places.add(self._place)


def check_not_overwritten(logits: Tensor) -> None:
    """Raise ValueError where an earlier call left a gradient in the memory of `logits`."""
    owner = _owner(logits)
    record: _Record | None = getattr(owner, ATTRIBUTE, None)
    if record is None or owner.is_inference() or record.version != owner._version:
        return
    if record.meets(_place(logits)):
        raise ValueError(
            "logits holds the gradient that policy_loss_from_logits(inplace=True) left there, or "
            "lies between its rows; compute the logits anew, pass a range y[a:b] of its own to "
            "each call, or pass inplace=False to the earlier call"
        )
    # PyTorch lets nobody use such a view once its base has been written to.
    several = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
    written = bool(record.places) and logits._is_view()
    if written and torch._C._autograd._get_creation_meta(logits) == several:
        raise ValueError(
            "logits is a view by chunk(), split() or unbind(), and policy_loss_from_logits("
            "inplace=True) has written to another of them; pass slices y[a:b] in place of "
            "chunk(), or inplace=False to the earlier call"
        )


def _owner(logits: Tensor) -> Tensor:
    return logits if logits._base is None else logits._base


def _place(logits: Tensor) -> Place:
    """The first and the last element of the memory that they lie in."""
    first = int(logits.storage_offset())
    extents = zip(logits.shape, logits.stride(), strict=True)
    return first, first + int(sum((size - 1) * stride for size, stride in extents))
