"""Tell from a configuration which models can be a policy, and their windows."""

from __future__ import annotations

import re
from typing import Any

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)


def architecture(config: Any) -> str | None:
    """Name the class that transformers' auto classes load, the one for images first."""
    for names in (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        names_of_kind = names.get(config.model_type)
        if names_of_kind is not None:
            return names_of_kind if isinstance(names_of_kind, str) else str(names_of_kind[0])
    return None


def refuse_other_kinds(config: Any) -> None:
    """Raise ValueError for a model that is no decoder over one sequence."""
    parts = (config, config.get_text_config())
    if any(getattr(part, "is_encoder_decoder", False) for part in parts):
        raise ValueError(f"a {config.model_type} is an encoder-decoder; name a decoder-only model")
    layers = getattr(config.get_text_config(), "cross_attention_layers", None)
    if layers or getattr(config.get_text_config(), "add_cross_attention", False):
        raise ValueError(
            f"a {config.model_type} reads images by cross-attention; name a model that has them as "
            "tokens of its prompt"
        )


def window_of(text: Any) -> int | None:
    """Count the tokens that the layers with the widest window see; None without windows.

    Doge's and DeepSeek's choose so many among all.
    """
    kinds = set(getattr(text, "layer_types", None) or ())
    names = ["keep_window_size", "index_topk"]
    if not kinds or any(re.search("sliding|chunked", kind) for kind in kinds):
        names += ["sliding_window", "sliding_window_size", "attention_chunk_size"]
    sizes = (getattr(text, name, None) for name in names)
    return max((s for s in sizes if isinstance(s, int)), default=None)


def turn_of(text: Any) -> int | None:
    """Count the tokens that rope turns by their place alone; None for any.

    Beyond, all keys of a forward turn otherwise, by its longest sequence: those of a shorter one
    beside it too, and not those of a cache.
    """
    rope = getattr(text, "rope_parameters", None) or {}
    parts = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    ropes = [part for part in parts if part.get("rope_type") in ("longrope", "dynamic")]
    lengths = [part.get("original_max_position_embeddings") for part in ropes]
    lengths += [getattr(text, "max_position_embeddings", None) for _ in ropes]
    # a cache's members have two tokens at least
    return min((n - 1 for n in lengths if isinstance(n, int)), default=None)
