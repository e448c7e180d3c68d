"""Qwen2.5-VL: its decoder is called with embeddings and positions of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rrgpolicy.model.families.qwen2 import Qwen2


class Qwen25VL(Qwen2):
    """Its tower attends within windows, and vLLM is given what it makes."""

    windows = True
    embedded = True

    def positions(self, model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        """See `Family`; ValueError where runs of image tokens and the grids do not agree."""
        is_image = inputs["input_ids"][0] == model.config.image_token_id
        marks, sizes = is_image.unique_consecutive(return_counts=True)
        grid, merge = inputs.get("image_grid_thw"), model.config.vision_config.spatial_merge_size
        fit = [] if grid is None else (grid.prod(1) // merge**2).tolist()
        if (runs := sizes[marks].tolist()) != fit:
            raise ValueError(f"image tokens {runs} where {len(fit)} images have {fit}: pair them")
        return super().positions(model, inputs)


FAMILY = Qwen25VL()
