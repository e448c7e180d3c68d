"""Hold the sizes of a model: its parameters by part, its widths, its cache."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rrgtrain.plan.kept import Kept

TOWER = ("patches", "block", "merger")


@dataclass(frozen=True)
class Weight:
    """One parameter: `part` is embedding, layer, norm, head, patches, block, merger or adapter."""

    part: str
    shape: tuple[int, ...]
    trained: bool = True
    itemsize: int = 4

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Text:
    """Sizes of a decoder; `head_width` is that of one attention head.

    inner: width of what a token meets in a layer's MLP, of `experts` the `chosen` ones.
    """

    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    vocabulary: int
    tied: bool
    experts: int = 0
    chosen: int = 0


@dataclass(frozen=True)
class Vision:
    """Sizes of a vision tower; blocks see `window`² patches, `full` of them all.

    patch_values: numbers of a patch of pixels. patch: its side in pixels. merge: patches a side
    that one token stands for, where images are cut by a grid; else None.
    """

    width: int
    inner: int
    layers: int
    heads: int
    patch_values: int
    patch: int
    merge: int | None
    window: int
    full: int


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model; one of text has no `vision`.

    listed: every parameter, a tied one once. adapted: (out, in) of the modules that take an
    adapter. caches: what transformers' cache keeps of a sequence, layer by layer. packed: bytes and
    FLOPs are held against runs of such a model; those of others are estimates from its widths.
    by_cache: prompts are shared by a prefix cache, as layers with a state need it.
    """

    text: Text
    vision: Vision | None
    listed: tuple[Weight, ...]
    adapted: tuple[tuple[int, int], ...]
    caches: tuple[Kept, ...]
    packed: bool
    by_cache: bool

    def weights(
        self, *, lora: int = 0, freeze_vision: bool = False, train: str = "all", compute: int = 4
    ) -> list[Weight]:
        """List every parameter as training holds it.

        lora: rank of the adapter, 0 without one. train: `sft.train`. compute: bytes of a number of
        `policy.dtype`, in which a frozen tower and an adapter's base stay.
        """
        weights = []
        for weight in self.listed:
            tower = weight.part in TOWER
            frozen = bool(lora) or (tower and freeze_vision)
            trained = not frozen and (tower or train == "all")
            weights.append(Weight(weight.part, weight.shape, trained, compute if frozen else 4))
        for rows, columns in self.adapted if lora else ():
            weights += [Weight("adapter", (lora, columns)), Weight("adapter", (rows, lora))]
        return weights

    def matrices(self, part: str) -> list[int]:
        """Count the numbers of each matrix that a token meets: of experts, its own."""
        text = self.text
        return [
            w.elements * text.chosen // text.experts
            if len(w.shape) == 3 and w.shape[0] == text.experts
            else w.elements
            for w in self.listed
            if w.part == part and len(w.shape) > 1
        ]

    def cache_bytes(self, tokens: float, compute: int) -> int:
        """Bytes of a cache of one sequence: windows keep their last tokens, states their own."""
        return round(sum(layer.bytes(tokens, compute) for layer in self.caches))


def elements(weights: Iterable[Weight], *parts: str) -> int:
    """Count the numbers of the named parts, of all without a name."""
    return sum(w.elements for w in weights if not parts or w.part in parts)
