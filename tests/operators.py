"""Look at every operator that runs within a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):
    """Hold in `noted` what `note(operator, arguments, result)` gives of each, in their order."""

    def __init__(self, note: Callable[[Any, Any, Any], Iterable[Any]]) -> None:
        super().__init__()
        self.note = note
        self.noted: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.noted.extend(self.note(func, args, out))
        return out
