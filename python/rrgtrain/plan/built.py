"""Read a model's sizes from the model itself, built on the meta device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
import transformers
from torch import nn

from rrgclinical.common import json_reader
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.kinds import architecture
from rrgtrain.plan.kept import kept_by_layers
from rrgtrain.plan.sizes import Sizes, Text, Vision, Weight


def read_sizes(config: Any) -> Sizes:
    """Read the sizes of the model that transformers builds from its configuration."""
    kind: Any = type(config)  # mypy takes a type for unhashable
    return _read(kind, config.to_json_string())


@lru_cache(maxsize=64)
def _read(kind: Any, written: str) -> Sizes:
    config = kind.from_dict(json_reader.parse(written, dict))
    with torch.device("meta"):
        model = getattr(transformers, str(architecture(config)))(config).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    backbone = Backbone(model=model, device=torch.device("meta"), pad_id=0)
    family, layers = backbone.family, kept_by_layers(backbone)
    blocks = _blocks(backbone)
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    targets = family.lora_targets(model)
    if isinstance(targets, str):  # a pattern
        targets = [name for name in linear if re.fullmatch(targets, name)]
    return Sizes(
        text=_text(backbone),
        vision=None if blocks is None else _vision(backbone, blocks),
        listed=tuple(_listed(backbone, blocks)),
        adapted=tuple((m.out_features, m.in_features) for m in map(linear.__getitem__, targets)),
        caches=layers,
        packed=family.packed,
        by_cache=not family.joins or any(layer.grows == 0 for layer in layers),
    )


def _listed(backbone: Backbone, blocks: nn.ModuleList | None) -> Iterator[Weight]:
    """List every parameter once, a head that is the embedding as embedding."""
    model, decoder = backbone.backbone, backbone.language_model
    parts: dict[int, str] = {}
    for part, module in (
        ("head", model.get_output_embeddings()),
        ("norm", decoder),
        ("layer", decoder.layers),
        ("embedding", model.get_input_embeddings()),
        ("block", blocks),
    ):
        parts |= {id(p): part for p in ([] if module is None else module.parameters())}
    before = "patches"
    for _, parameter in backbone.eyes():
        if parts.setdefault(id(parameter), before) == "block":
            before = "merger"
    for parameter in model.parameters():
        yield Weight(parts[id(parameter)], tuple(parameter.shape))


def _text(backbone: Backbone) -> Text:
    text = backbone.text_config
    counts = (getattr(text, name, None) for name in ("num_experts", "num_local_experts"))
    experts = next((int(count) for count in counts if count), 0)
    chosen = int(text.num_experts_per_tok) if experts else 1
    inner = getattr(text, "moe_intermediate_size", None) if experts else None
    rows, width = backbone.embedding_shape
    heads = int(text.num_attention_heads)
    return Text(
        width=width,
        inner=chosen * int(inner or text.intermediate_size),
        layers=len(backbone.language_model.layers),
        heads=heads,
        key_heads=int(getattr(text, "num_key_value_heads", None) or heads),
        head_width=int(getattr(text, "head_dim", None) or width // heads),
        vocabulary=rows,
        tied=backbone.ties_head,
        experts=experts,
        chosen=chosen,
    )


def _blocks(backbone: Backbone) -> nn.ModuleList | None:
    """Find the layers of the tower: the first list of modules of its parameters alone."""
    eyes = {id(parameter) for _, parameter in backbone.eyes()}
    for module in backbone.backbone.modules():
        own = {id(parameter) for parameter in module.parameters()}
        if isinstance(module, nn.ModuleList) and own and own <= eyes:
            return module
    return None


def _vision(backbone: Backbone, blocks: nn.ModuleList) -> Vision:
    config = backbone.config.vision_config
    linear = [m for m in blocks[0].modules() if isinstance(m, nn.Linear)]
    eyes = {id(parameter) for _, parameter in backbone.eyes()}
    first = next(
        m
        for m in backbone.backbone.modules()
        if isinstance(m, nn.Conv2d | nn.Conv3d | nn.Linear) and id(m.weight) in eyes
    )
    patch = config.patch_size
    patch = patch if isinstance(patch, int) else patch[0]
    # blocks without windows see all
    windows = getattr(config, "window_size", None)
    whole = getattr(config, "fullatt_block_indexes", ()) if windows else blocks
    return Vision(
        width=linear[0].in_features,
        inner=max(m.in_features for m in linear),
        layers=len(blocks),
        heads=int(getattr(config, "num_heads", None) or config.num_attention_heads),
        patch_values=first.weight[0].numel(),
        patch=patch,
        merge=getattr(config, "spatial_merge_size", None),
        window=(windows or 0) // patch,
        full=len(whole),
    )
