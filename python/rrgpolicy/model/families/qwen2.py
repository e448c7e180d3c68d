"""Qwen2: text alone, packed as Qwen2.5-VL's decoder is."""

from __future__ import annotations

from typing import Any

from rrgpolicy.model.families.family import Family

# One pattern: adapters' files have named it so far, and vLLM reads it.
PROJECTIONS = (
    r"model\.(language_model\.)?layers\.\d+\."
    r"(self_attn\.(q|k|v|o)_proj|mlp\.(gate|up|down)_proj)"
)


class Qwen2(Family):
    """Positions count up: no images."""

    packed = True

    def lora_targets(self, model: Any) -> str:
        return PROJECTIONS


FAMILY = Qwen2()
