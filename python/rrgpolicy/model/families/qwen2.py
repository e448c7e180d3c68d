"""Qwen2: text alone, packed as Qwen2.5-VL's decoder is."""

from __future__ import annotations

from typing import Any

from rrgpolicy.model.families.family import Family
from rrgpolicy.model.families.qwen2_5_vl import PROJECTIONS


class Qwen2(Family):
    """Positions count up: no images."""

    packed = True

    def lora_targets(self, model: Any) -> str:
        return PROJECTIONS


FAMILY = Qwen2()
