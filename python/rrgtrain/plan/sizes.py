"""List a model's parameters by part, from the model itself built on the meta device."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import transformers
from torch import nn

from rrgclinical.common import json_reader
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.kinds import architecture


@dataclass(frozen=True)
class Weight:
    """One parameter: `part` is tower, layer, root (whatever else there is) or adapter."""

    part: str
    shape: tuple[int, ...]
    trained: bool = True
    itemsize: int = 4

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model.

    listed: every parameter, a tied one once. adapted: (out, in) of the modules that take an
    adapter. layers: of the decoder. packed: an engine is sent no tower, whose images are embedded
    here.
    """

    listed: tuple[Weight, ...]
    adapted: tuple[tuple[int, int], ...]
    layers: int
    packed: bool

    def weights(
        self, *, lora: int = 0, freeze_vision: bool = False, train: str = "all", compute: int = 4
    ) -> list[Weight]:
        """List every parameter as training holds it.

        lora: rank of the adapter, 0 without one. train: `sft.train`. compute: bytes of a number of
        `policy.dtype`, in which a frozen tower and an adapter's base stay.
        """
        weights = []
        for weight in self.listed:
            tower = weight.part == "tower"
            frozen = bool(lora) or (tower and freeze_vision)
            trained = not frozen and (tower or train == "all")
            weights.append(Weight(weight.part, weight.shape, trained, compute if frozen else 4))
        for rows, columns in self.adapted if lora else ():
            weights += [Weight("adapter", (lora, columns)), Weight("adapter", (rows, lora))]
        return weights


def elements(weights: Iterable[Weight], *parts: str) -> int:
    """Count the numbers of the named parts, of all without a name."""
    return sum(w.elements for w in weights if not parts or w.part in parts)


def read_sizes(config: Any) -> Sizes:
    """Read the sizes of the model that transformers builds from its configuration."""
    kind: Any = type(config)  # mypy takes a type for unhashable
    return _read(kind, config.to_json_string())


@lru_cache(maxsize=64)
def _read(kind: Any, written: str) -> Sizes:
    config = kind.from_dict(json_reader.parse(written, dict))
    with torch.device("meta"):
        model = getattr(transformers, str(architecture(config)))(config).eval()
    backbone = Backbone(model=model, device=torch.device("meta"), pad_id=0)
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    targets = backbone.family.lora_targets(model)
    if isinstance(targets, str):  # a pattern
        targets = [name for name in linear if re.fullmatch(targets, name)]
    return Sizes(
        listed=tuple(_listed(backbone)),
        adapted=tuple((m.out_features, m.in_features) for m in map(linear.__getitem__, targets)),
        layers=len(backbone.language_model.layers),
        packed=backbone.family.packed,
    )


def _listed(backbone: Backbone) -> Iterator[Weight]:
    """List every parameter once, a tied one too."""
    tower = {id(parameter) for _, parameter in backbone.eyes()}
    layers = {id(parameter) for parameter in backbone.language_model.layers.parameters()}
    for parameter in backbone.backbone.parameters():
        key = id(parameter)
        part = "tower" if key in tower else "layer" if key in layers else "root"
        yield Weight(part, tuple(parameter.shape))
