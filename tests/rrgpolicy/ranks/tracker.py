"""Count the bytes of live tensors while a block runs, by a dispatch mode."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PATIENCE = 0.1
"""Seconds in which a thread of gloo lets go of what it has sent."""


class LiveBytes(TorchDispatchMode):
    """Hold `bytes` of all storages that were made inside and still live, and their `peak`.

    Each storage counts once, however many tensors view it, until nothing refers to it. gloo's
    thread refers to what it has sent until it is scheduled again, on a busy machine long after the
    last reference of the code that is measured: a new peak waits for it.

    An op of ours is replaced by its function for the CPU, so that what it makes inside is seen by
    this mode and by one entered before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._alive: dict[int, Any] = {}
        self._sent: set[int] = set()
        self._held: set[int] = set()

    def watch(self, model: nn.Module) -> None:
        """Count a model that is there already."""
        for tensor in (*model.parameters(), *model.buffers()):
            self._add(tensor.detach())

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Run a block inside, with `peak` counted from its beginning."""
        resize = torch.UntypedStorage.resize_
        self.peak = self.bytes

        def resized(storage: Any, size: int) -> Any:
            done = resize(storage, size)
            if storage._cdata in self._sizes:
                self._grow(size - self._sizes[storage._cdata])
                self._sizes[storage._cdata] = size
            return done

        # FSDP empties and fills the storages of what it gathers
        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign]
        try:
            with self:
                yield
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "rrgkern":
            op: Any = OPDEFS[func._schema.name]
            with self:
                made = op._backend_fns.get("cpu", op._init_fn)(*args, **(kwargs or {}))
        else:
            made = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, Tensor):
                    self._sent.add(leaf.untyped_storage()._cdata)
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        return made

    def _add(self, tensor: Any) -> None:
        # a DTensor stands for its part
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        if storage.device.type == "meta":
            return
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self._alive[key] = weakref.ref(storage, lambda _: self._drop(key))
        self._grow(self._sizes[key])

    def _drop(self, key: int) -> None:
        del self._alive[key]
        self._sent.discard(key)
        self._held.discard(key)
        self.bytes -= self._sizes.pop(key)

    def _grow(self, size: int) -> None:
        if self.bytes + size > self.peak:
            self._wait_for_senders()
        self.bytes += size
        self.peak = max(self.peak, self.bytes)

    def _wait_for_senders(self) -> None:
        until = time.monotonic() + PATIENCE
        while (sent := self._sent & self._alive.keys() - self._held) and time.monotonic() < until:
            time.sleep(0.0005)
        # what is alive now, the loading itself holds
        self._held |= sent
        self._sent.clear()
