"""Tell which models of transformers can be a policy, from their configuration alone."""

from __future__ import annotations

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
