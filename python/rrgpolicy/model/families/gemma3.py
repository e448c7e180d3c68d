"""Gemma 3 and MedGemma: a square image has a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrgpolicy.model.families.family import Family
from rrgpolicy.model.families.images import Squares


class Gemma3Images(Squares):
    """The template writes the token that begins an image."""

    reads = "Gemma3ImageProcessorPil"
    options = {"do_convert_rgb": True, "do_pan_and_scan": False}  # noqa: RUF012
    arguments = ("pixel_values",)

    def tokens(self, encoded: Mapping[str, Any]) -> list[int]:
        return [self.config.mm_tokens_per_image] * len(encoded["pixel_values"])

    def marks(self, tokenizer: Any, image_token: int) -> tuple[str, str]:
        ids = [self.config.boi_token_index, image_token, self.config.eoi_token_index]
        begin, image, end = tokenizer.convert_ids_to_tokens(ids)
        return begin, f"\n\n{begin}{image}{end}\n\n"

    def own_config(self) -> dict[str, Any]:
        tokens = self.config.mm_tokens_per_image
        return {"processor_class": "Gemma3Processor", "image_seq_length": tokens}


FAMILY = Family(images=Gemma3Images)
