"""Count the bytes of tensors alive at every operation."""

from __future__ import annotations

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """Bytes of the storages that operations made and that still live, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.peak = 0
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = {id_of(x) for x in tree_leaves((args, kwargs or {})) if torch.is_tensor(x)}
        if func is torch.ops.aten.addmm.dtype_out:
            # torch 2.11 has no such product without numbers; it makes nothing but `out`
            return kwargs["out"]
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if torch.is_tensor(leaf) and id_of(leaf) not in before | self.alive.keys():
                self._count(leaf)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        self.alive[key] = size
        self.largest = max(self.largest, size)
        weakref.finalize(storage, self.alive.pop, key, None)
        self.peak = max(self.peak, sum(self.alive.values()))


def id_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
