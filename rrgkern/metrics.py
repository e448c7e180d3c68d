"""Name the elements of a vector of metrics when somebody asks for one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, cast

from torch import Tensor
from torch.utils import _pytree as pytree


class Metrics(MutableMapping[str, Tensor]):
    """Name 0-d tensors, in order, that are made at the first look.

    They are views of one vector [M]: nine tensors take longer than the loss of a few tokens, and
    most callers ask for none of them. No subclass of dict: what reads a dict behind its methods, as
    torch.compile does, would find it empty.

    Made of a mapping too, as libraries that walk mappings make one like it: `type(data)(mapping)`.
    """

    __slots__ = ("_made", "_names", "_vector")

    def __init__(
        self, names: Sequence[str] | Mapping[str, Tensor], vector: Tensor | None = None
    ) -> None:
        self._names = names
        self._vector = vector
        self._made: dict[str, Tensor] | None = None
        if vector is None:
            self._made = dict(cast(Mapping[str, Tensor], names))

    def _dict(self) -> dict[str, Tensor]:
        if self._made is None:
            assert self._vector is not None
            views = self._vector.detach().unbind(0)
            self._made = dict(zip(self._names, views, strict=True))
        return self._made

    def __getitem__(self, name: str) -> Tensor:
        return self._dict()[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._dict()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dict())

    def __len__(self) -> int:
        return len(self._dict())

    def __or__(self, other: Any) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Any) -> dict[str, Any]:
        return {**other, **self}

    def __ior__(self, other: Any) -> Metrics:
        self.update(other)
        return self

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._dict())

    def copy(self) -> dict[str, Tensor]:
        """Return a plain dict."""
        return dict(self._dict())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the one kind of dict whose constructor `torch.load` calls."""
        return OrderedDict, (self._dict(),)

    def __repr__(self) -> str:
        return repr(self._dict())


pytree.register_pytree_node(
    Metrics,
    lambda metrics: (list(metrics.values()), list(metrics)),
    lambda values, names: dict(zip(names, values, strict=True)),
)
