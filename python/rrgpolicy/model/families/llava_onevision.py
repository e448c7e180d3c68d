"""LLaVA-OneVision: a lone image is cut into tiles without its padding, several are not cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from transformers.image_processing_utils import select_best_resolution

from rrgpolicy.model.families.family import Family
from rrgpolicy.model.families.images import Squares


class OneVisionImages(Squares):
    """Each image has the tokens of the whole; a lone one its tiles' too."""

    reads = "LlavaOnevisionImageProcessorPil"
    arguments = ("pixel_values", "image_sizes", "batch_num_images")
    together = True

    def tokens(self, encoded: Mapping[str, Any]) -> list[int]:
        sizes = [[int(edge) for edge in size] for size in encoded["image_sizes"]]
        if len(sizes) > 1:
            return [self.across**2 + 1] * len(sizes)  # a new line behind each
        return [self.across**2 + self._of_tiles(*sizes[0])]

    def _of_tiles(self, height: int, width: int) -> int:
        """Count the tokens of the tiles of one image, and of a new line behind each row."""
        resolutions = self.processor.image_grid_pinpoints
        best = select_best_resolution((height, width), resolutions)
        rows, columns = (self.across * edge // self.side for edge in best)
        # the picture keeps its shape: there is padding above and below, or on both sides
        if width / height > columns / rows:
            rows -= 2 * ((rows - int(round(height * (columns / width), 7))) // 2)
        else:
            columns -= 2 * ((columns - int(round(width * (rows / height), 7))) // 2)
        ratio = math.sqrt(rows * columns / (self._most * self.across**2))
        if ratio > 1.1:  # features of too many tiles are scaled down
            rows, columns = int(rows // ratio), int(columns // ratio)
        return rows * (columns + 1)

    @property
    def _most(self) -> int:
        """The tiles whose tokens an image may have: 9 of "anyres_max_9"."""
        return int(str(self._aspect_ratio).removeprefix("anyres_max_"))

    @property
    def _aspect_ratio(self) -> Any:
        return getattr(self.config, "vision_aspect_ratio", "anyres_max_9")

    @property
    def area(self) -> int:
        return int(max(height * width for height, width in self.processor.image_grid_pinpoints))

    @property
    def sizes(self) -> str:
        side = f"{self.side} x {self.side} pixels"
        return f"A lone image is cut into tiles of {side}, several are scaled to that."

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        own, tower = self.processor.image_grid_pinpoints, self.config.image_grid_pinpoints
        if [[*size] for size in own] != [[*size] for size in tower]:
            yield "image_grid_pinpoints of preprocessor_config.json are not those of config.json"
        strategy = self.config.vision_feature_select_strategy
        if strategy != "full" or not str(self._aspect_ratio).startswith("anyres_max_"):
            yield (
                f"config.json has vision_feature_select_strategy {strategy} and "
                f"vision_aspect_ratio {self._aspect_ratio}; wanted full and anyres_max_N"
            )

    def own_config(self) -> dict[str, Any]:
        return {
            "processor_class": "LlavaOnevisionProcessor",
            "num_image_tokens": self.across**2,
            "vision_aspect_ratio": self._aspect_ratio,
            "vision_feature_select_strategy": "full",
        }


FAMILY = Family(images=OneVisionImages)
