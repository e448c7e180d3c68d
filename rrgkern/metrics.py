"""Name the elements of a vector of metrics when somebody asks for one."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from torch import Tensor
from torch.utils import _pytree as pytree


class Metrics(UserDict[str, Tensor]):
    """Name 0-d tensors, in order, that are made at the first look.

    They are views of one vector [M]: nine tensors take longer than the loss of a few tokens, and
    most callers ask for none of them. No subclass of dict: what reads a dict behind its methods, as
    torch.compile does, would find it empty.

    Made of a mapping too, as libraries that walk mappings make one like it: `type(data)(mapping)`.
    """

    def __init__(
        self, names: Sequence[str] | Mapping[str, Tensor], vector: Tensor | None = None
    ) -> None:
        self._names, self._vector = names, vector
        self._made = dict(cast(Mapping[str, Tensor], names)) if vector is None else None

    @property
    def data(self) -> dict[str, Tensor]:  # type: ignore[override]
        """The tensors by name, which `UserDict` asks for."""
        if self._made is None:
            assert self._vector is not None
            views = self._vector.detach().unbind(0)
            self._made = dict(zip(self._names, views, strict=True))
        return self._made

    def __or__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        return {**self, **other}

    def __ror__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        return {**other, **self}

    def __reversed__(self) -> Iterator[str]:
        return reversed(self.data)

    def copy(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Return a plain dict."""
        return dict(self.data)

    __copy__ = copy  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the one kind of dict whose constructor `torch.load` calls."""
        return OrderedDict, (self.data,)


pytree.register_pytree_node(
    Metrics,
    lambda metrics: (list(metrics.values()), list(metrics)),
    lambda values, names: dict(zip(names, values, strict=True)),
)
