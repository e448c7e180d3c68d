"""Embeddings of images that a frozen vision tower need not compute twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping

from torch import Tensor


class VisionCache(MutableMapping[str, Tensor]):
    """Embeddings by study in at most `capacity` bytes; the least recently used go first.

    One that alone is larger than the capacity is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.bytes = capacity, 0
        self._kept: OrderedDict[str, Tensor] = OrderedDict()

    def __getitem__(self, key: str) -> Tensor:
        found = self._kept[key]
        self._kept.move_to_end(key)
        return found

    def __setitem__(self, key: str, embedding: Tensor) -> None:
        if key in self._kept:
            del self[key]
        size = _bytes(embedding)
        if size > self.capacity:
            return
        while self.bytes + size > self.capacity:
            del self[next(iter(self._kept))]
        # A view would keep the storage of everything computed beside it.
        self._kept[key] = embedding.clone()
        self.bytes += size

    def __delitem__(self, key: str) -> None:
        self.bytes -= _bytes(self._kept.pop(key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
