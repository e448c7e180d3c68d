"""List a policy's parameters by part, and count the bytes that a rank holds.

The model itself is built on the meta device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import Qwen2_5_VLConfig

from rrgclinical.common import json_reader
from rrgpolicy.model.backbone import Backbone, architecture
from rrgpolicy.model.load import base_of_adapter, fetch, read_config
from rrgpolicy.model.tiny import SPECIAL_TOKENS, model_config
from rrgtrain.schema import LoraSettings, PolicySettings


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
        return read_sizes(Qwen2_5_VLConfig(**KNOWN[policy.path]))
    config = read_config(policy.path)
    return fetch(policy.path, lambda: read_sizes(config), "the sizes of ")


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
    return read_sizes(model_config(policy, policy.vocabulary, ids))


FP32 = 4
# bitsandbytes keeps smaller tensors in 32 bits, and one fp32 scale for each block of the others.
SMALLEST_8BIT, BLOCK_8BIT = 4096, 256
UNITS_AHEAD = 2
"""Layers whose gathered copy is there at once: the one that computes and the next."""


@dataclass(frozen=True)
class StateBytes:
    """Bytes of one rank.

    `gathered` is the copy of the whole model in `policy.dtype` that rollouts and pushes to vLLM
    read; gradients are freed before there is one. `staged` is the pinned copy that a checkpoint is
    written from, each tensor of a power of two, as PyTorch allocates them.
    """

    weights: int
    gradients: int
    moments: int
    gathered: int
    staged: int


def state_bytes(
    weights: Iterable[Weight], *, compute: int, ranks: int = 1, optimizer: str = "adamw"
) -> StateBytes:
    """Predict what each of `ranks` holds of a policy loaded with `masters`, placed or not.

    A weight is cut along its first axis into equal parts, the last ones padded. Of n elements, what
    trains takes 4n bytes of weights, 4n of gradients and 8n of moments (2n in 8 bits), and 2n of a
    gathered copy in bf16; what never trains takes its own bytes. In a process alone there is no
    second copy of what is in `policy.dtype` already.

    compute: bytes of a number of `policy.dtype`. optimizer: `rl.optimizer`. The reference of KL,
    activations and vLLM come on top.
    """
    held = gradients = moments = gathered = staged = 0
    for weight in weights:
        rows = weight.shape[0] if weight.shape else 1
        part = -(-rows // ranks) * (weight.elements // max(1, rows))
        held += part * weight.itemsize
        if ranks > 1 or weight.itemsize != compute:
            gathered += weight.elements * compute
        if weight.trained:
            own, moment = part * weight.itemsize, _moment(part, weight.itemsize, optimizer)
            gradients += own
            moments += 2 * sum(moment)
            staged += sum(1 << (size - 1).bit_length() for size in (own, *moment, *moment))
    return StateBytes(held, gradients, moments, gathered, staged)


def _moment(count: int, size: int, optimizer: str) -> tuple[int, ...]:
    if optimizer == "adamw_8bit" and count >= SMALLEST_8BIT:
        return count, FP32 * -(-count // BLOCK_8BIT)
    return (count * size,)


def copies(weights: list[Weight], layers: int, *, compute: int, ranks: int) -> int:
    """Count the bytes that `fully_shard` gathers for an update, in the dtype of computation.

    What lies outside the layers stays gathered. In a process alone what never trains and has that
    dtype is used as it is.
    """
    if ranks == 1 and compute == FP32:
        return 0
    cast = [w for w in weights if ranks > 1 or w.trained or w.itemsize != compute]
    inside = elements(cast, "layer", "adapter")
    return compute * (elements(cast) - inside + UNITS_AHEAD * inside // max(1, layers))
