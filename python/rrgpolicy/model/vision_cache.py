"""Features of images that a frozen vision tower need not compute twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map


class VisionCache(MutableMapping[str, Any]):
    """Features by study in at most `capacity` bytes; the least recently used go first.

    They are a tensor or what a family makes of several. One that alone is larger than the capacity
    is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.bytes = capacity, 0
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def __getitem__(self, key: str) -> Any:
        found = self._kept[key]
        self._kept.move_to_end(key)
        return found

    def __setitem__(self, key: str, features: Any) -> None:
        if key in self._kept:
            del self[key]
        size = _bytes(features)
        if size > self.capacity:
            return
        while self.bytes + size > self.capacity:
            del self[next(iter(self._kept))]
        # A view would keep the storage of everything computed beside it.
        self._kept[key] = tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, features)
        self.bytes += size

    def __delitem__(self, key: str) -> None:
        self.bytes -= _bytes(self._kept.pop(key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def _bytes(features: Any) -> int:
    tensors = [leaf for leaf in tree_leaves(features) if isinstance(leaf, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
