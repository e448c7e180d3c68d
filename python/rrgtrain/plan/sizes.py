"""Read a model's sizes from its configuration: every weight's shape, without a weight.

Sources of the shapes: `modeling_qwen2.py` and `modeling_qwen2_5_vl.py` of transformers 5; a test
compares them with the models' own parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgtrain.errors import UserError
from rrgtrain.policy.families import family_of
from rrgtrain.policy.load import PREPROCESSOR, base_of_adapter, fetch, read_config
from rrgtrain.policy.tiny import MERGE, PATCH, SPECIAL_TOKENS, TinyConfig, model_config
from rrgtrain.schema import LoraSettings, PolicySettings

IMAGE_PIXELS_MAX = 12_845_056
"""`longest_edge` of Qwen2.5-VL's preprocessor_config.json."""
# Frames of a still picture and its colours: a patch has 2 * 3 * 14 * 14 = 1,176 values.
FRAMES, COLOURS = 2, 3
WINDOW_PIXELS = 112
"""Side of a window of the vision tower's local attention (Qwen2.5-VL's config.json)."""


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
    """Sizes of a decoder; `head_width` is that of one attention head."""

    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    vocabulary: int
    tied: bool


@dataclass(frozen=True)
class Vision:
    """Sizes of a vision tower; blocks see `window`² patches, `full` of them all."""

    width: int
    inner: int
    layers: int
    heads: int
    out: int
    patch: int
    merge: int
    window: int
    full: int

    @property
    def patch_values(self) -> int:
        """Numbers of a patch of pixels."""
        return FRAMES * COLOURS * self.patch**2


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Qwen2.5-VL, or of a Qwen2 without `vision`."""

    text: Text
    vision: Vision | None

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Sizes:
        """Read a config.json, flat as Qwen published it or nested as transformers 5 writes it."""
        text = dict(config.get("text_config") or config)
        heads, width = int(text["num_attention_heads"]), int(text["hidden_size"])
        # transformers ties the head where either part says so
        tied = config.get("tie_word_embeddings") or text.get("tie_word_embeddings")
        decoder = Text(
            width=width,
            inner=int(text["intermediate_size"]),
            layers=int(text["num_hidden_layers"]),
            heads=heads,
            key_heads=int(text.get("num_key_value_heads") or heads),
            head_width=int(text.get("head_dim") or width // heads),
            vocabulary=int(text["vocab_size"]),
            tied=bool(tied),
        )
        vision = config.get("vision_config")
        return cls(decoder, None if vision is None else _tower(vision))

    @property
    def image_tokens(self) -> int:
        """Patches that one image token stands for."""
        return self.vision.merge**2 if self.vision else 1

    def weights(
        self, *, lora: int = 0, freeze_vision: bool = False, train: str = "all", compute: int = 4
    ) -> list[Weight]:
        """List every parameter as training holds it.

        lora: rank of the adapter, 0 without one. train: `sft.train`. compute: bytes of a number of
        `policy.dtype`, in which a frozen tower and an adapter's base stay.
        """
        weights = []
        for part, shape in self._shapes():
            tower = part in TOWER
            frozen = bool(lora) or (tower and freeze_vision)
            trained = not frozen and (tower or train == "all")
            weights.append(Weight(part, shape, trained, compute if frozen else 4))
        if lora:
            weights += [Weight("adapter", shape) for shape in self._adapter(lora)]
        return weights

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        text = self.text
        yield "embedding", (text.vocabulary, text.width)
        if not text.tied:
            yield "head", (text.vocabulary, text.width)
        yield "norm", (text.width,)
        keys = text.key_heads * text.head_width
        for _ in range(text.layers):
            for rows, columns in self.projections():
                yield "layer", (rows, columns)
            for bias in (text.heads * text.head_width, keys, keys):
                yield "layer", (bias,)
            yield from [("layer", (text.width,))] * 2
        if self.vision is not None:
            yield from _of_tower(self.vision)

    def projections(self) -> list[tuple[int, int]]:
        """List (out, in) of a decoder layer's seven matrices."""
        text = self.text
        queries, keys = text.heads * text.head_width, text.key_heads * text.head_width
        return [
            (queries, text.width),
            (keys, text.width),
            (keys, text.width),
            (text.width, queries),
            (text.inner, text.width),
            (text.inner, text.width),
            (text.width, text.inner),
        ]

    def _adapter(self, rank: int) -> Iterator[tuple[int, ...]]:
        for rows, columns in self.projections() * self.text.layers:
            yield rank, columns
            yield rows, rank


def _of_tower(vision: Vision) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, inner = vision.width, vision.inner
    yield "patches", (width, COLOURS, FRAMES, vision.patch, vision.patch)
    for _ in range(vision.layers):
        for rows, columns in ((3 * width, width), (width, width), (inner, width), (inner, width)):
            yield "block", (rows, columns)
            yield "block", (rows,)
        yield "block", (width, inner)
        yield from [("block", (width,))] * 3
    merged = width * vision.merge**2
    yield "merger", (width,)
    yield "merger", (merged, merged)
    yield "merger", (merged,)
    yield "merger", (vision.out, merged)
    yield "merger", (vision.out,)


def _tower(config: Mapping[str, Any]) -> Vision:
    patch, merge = (
        int(config.get("patch_size", PATCH)),
        int(config.get("spatial_merge_size", MERGE)),
    )
    return Vision(
        width=int(config["hidden_size"]),
        inner=int(config["intermediate_size"]),
        layers=int(config["depth"]),
        heads=int(config["num_heads"]),
        out=int(config["out_hidden_size"]),
        patch=patch,
        merge=merge,
        window=int(config.get("window_size", WINDOW_PIXELS)) // patch,
        full=len(config.get("fullatt_block_indexes", ())),
    )


def elements(weights: Iterable[Weight], *parts: str) -> int:
    """Count the numbers of the named parts, of all without a name."""
    return sum(w.elements for w in weights if not parts or w.part in parts)


_TOWER = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
_QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "vision_config": {**_TOWER, "out_hidden_size": 3584},
}
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-VL-3B-Instruct": {
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "vision_config": {**_TOWER, "out_hidden_size": 2048},
    },
    "Qwen/Qwen2.5-VL-7B-Instruct": _QWEN_7B,
    "FreedomIntelligence/HuatuoGPT-Vision-7B-Qwen2.5VL": _QWEN_7B,
}
"""Sizes in the published config.json of the recipes' policies, so that no hub is asked."""


def sizes_of(policy: PolicySettings) -> Sizes:
    """Find the sizes of a recipe's policy.

    A hub is asked only for a name that is not `KNOWN`.
    Raises UserError where there is no such checkpoint, or the trainer knows no such model.
    """
    if policy.path == "tiny":
        return tiny_sizes(policy)
    if policy.path in KNOWN:
        return Sizes.of_config(KNOWN[policy.path])
    config = read_config(policy.path)
    if not family_of(config).packed:
        raise UserError(
            f"the sizes of a {config.model_type} are not known: plan counts Qwen2.5-VL and Qwen2"
        )
    return fetch(policy.path, lambda: Sizes.of_config(config.to_dict()), "the sizes of ")


def pixel_bounds(policy: PolicySettings) -> tuple[int, int]:
    """Return the smallest and largest area of an image, as recipe and checkpoint bound it."""
    low, high = 0, IMAGE_PIXELS_MAX
    file = Path(policy.path) / PREPROCESSOR
    if not file.is_file() and (file.parent / "adapter_config.json").is_file():
        file = Path(base_of_adapter(policy.path)) / PREPROCESSOR
    if policy.path == "tiny":
        low = high = TinyConfig().image_size ** 2
    elif file.is_file():

        def written() -> tuple[int, int]:
            found = json_reader.read(file, dict)
            size = found.get("size") or {}
            # the older names, which Qwen's own files have, go before `size` in transformers too
            return (
                int(found.get("min_pixels") or size.get("shortest_edge", low)),
                int(found.get("max_pixels") or size.get("longest_edge", high)),
            )

        low, high = fetch(str(file), written)
    return policy.min_pixels or low, policy.max_pixels or high


def lora_rank(policy: PolicySettings) -> int:
    """Return the rank of the adapter that trains: the recipe's or its checkpoint's."""
    if policy.lora.rank or policy.path == "tiny":
        return policy.lora.rank
    file = Path(policy.path) / "adapter_config.json"
    if not file.is_file():
        return 0
    base_of_adapter(policy.path)  # refuses one that cannot be read
    return fetch(
        policy.path, lambda: int(json_reader.read(file, dict).get("r", LoraSettings().rank))
    )


def tiny_sizes(policy: PolicySettings) -> Sizes:
    """Return the sizes of the policy that `tiny` builds; UserError for those that cannot be."""
    ids = dict.fromkeys(SPECIAL_TOKENS, 0)
    config = model_config(TinyConfig.of(policy), policy.vocabulary, ids)
    return Sizes.of_config(config.to_dict())
