"""Hold how the weights of a model lie: read or not, whole or in shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

Fill = Callable[[str, Any], None]
"""Write the values of the parameter of this name into its empty DTensor."""


@dataclass
class Layout:
    """Hold the state of a model's weights; policies of one model have one layout.

    fill: given while the weights are unread, `sharding.setup` takes it; root: the module that
    `fully_shard` holds, and plain: the modules without weights, of which copies are made, both
    once the weights are sharded; copied: the copy of `gathered`, and whether it is of all weights.
    """

    fill: Fill | None = None
    root: Any = None
    plain: nn.Module | None = None
    copied: tuple[nn.Module | None, bool] = (None, False)

    @property
    def unread(self) -> bool:
        return self.fill is not None


class Shardable(Protocol):
    """The parts of a policy that its layout over ranks needs."""

    @property
    def model(self) -> Any: ...
    @property
    def language_model(self) -> Any: ...
    def eyes(self) -> list[tuple[str, nn.Parameter]]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def layout(self) -> Layout: ...
