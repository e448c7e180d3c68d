"""Count what transformers' cache keeps of a sequence, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from rrgpolicy.model.backbone import Backbone

SHORT, LONGER = 2, 4
"""Lengths of which a cache is read; one token alone would be taken for a decode step."""


@dataclass(frozen=True)
class Kept:
    """Hold what a layer keeps: `grows` numbers a token, of the last `most` at most.

    fixed: numbers of a state, whatever the length; wide: those of them in fp32 in any dtype.
    """

    grows: int
    most: float
    fixed: int
    wide: int

    def bytes(self, tokens: float, compute: int) -> float:
        """Bytes of a sequence; compute: those of a number of `policy.dtype`."""
        return compute * (self.fixed + self.grows * min(tokens, self.most)) + 4 * self.wide


def kept_by_layers(backbone: Backbone) -> tuple[Kept, ...]:
    """Run a bf16 model on the meta device; read how each layer's cache grows."""
    pairs = zip(_layers(backbone, SHORT), _layers(backbone, LONGER), strict=True)
    layers = []
    for short, longer in pairs:
        grows = (_numbers(longer) - _numbers(short)) // (LONGER - SHORT)
        most = getattr(short, "sliding_window", None)
        wide = 0 if grows else _numbers(short, torch.float32)
        fixed = _numbers(short) - wide - SHORT * grows
        layers.append(Kept(grows, math.inf if most is None else most - 1, fixed, wide))
    return tuple(layers)


@torch.no_grad()
def _layers(backbone: Backbone, tokens: int) -> list[Any]:
    cache = DynamicCache(config=backbone.text_config)
    ids = torch.zeros(1, tokens, dtype=torch.int64, device="meta")
    places = torch.arange(tokens, device="meta")[None]
    backbone.language_model(
        input_ids=ids, position_ids=places, past_key_values=cache, use_cache=True
    )
    return list(cache.layers)


def _numbers(layer: Any, *dtypes: torch.dtype) -> int:
    """Count the numbers of a layer's tensors, however they are held; of the dtypes, if named."""
    tensors = (t for t in _tensors(vars(layer)) if t.is_floating_point())
    return sum(t.numel() for t in tensors if not dtypes or t.dtype in dtypes)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
