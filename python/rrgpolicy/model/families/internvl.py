"""InternVL: an image is cut into square tiles, the whole behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rrgclinical.common.errors import UserError
from rrgpolicy.model.families.family import Family
from rrgpolicy.model.families.images import Squares


class InternVLImages(Squares):
    """Each tile has as many tokens; marks stand around an image's."""

    reads = "GotOcr2ImageProcessorPil"
    options = {"crop_to_patches": True}  # noqa: RUF012
    arguments = ("pixel_values",)

    @property
    def of_tile(self) -> int:
        """The tokens of a tile."""
        return int((self.across * self.config.downsample_ratio) ** 2)

    def tokens(self, encoded: Mapping[str, Any]) -> list[int]:
        return [self.of_tile * int(tiles) for tiles in encoded["num_patches"]]

    def marks(self, tokenizer: Any, image_token: int) -> tuple[str, str]:
        image = str(tokenizer.convert_ids_to_tokens(image_token))
        begin = getattr(tokenizer, "start_image_token", "<img>")
        end = getattr(tokenizer, "end_image_token", "</img>")
        return image, f"{begin}{image}{end}"

    @property
    def area(self) -> int:
        return int(self.side**2 * self.processor.max_patches)

    @property
    def sizes(self) -> str:
        tiles = f"{self.processor.min_patches} to {self.processor.max_patches}"
        return f"Images are cut into {tiles} tiles of {self.side} x {self.side} pixels."

    def bound(self, low: int | None, high: int | None) -> None:
        tile = self.side**2
        fewest = self.processor.min_patches if low is None else max(1, -(-low // tile))
        most = self.processor.max_patches if high is None else high // tile
        if not 1 <= fewest <= most:
            raise UserError(
                f"policy.min_pixels={low}, policy.max_pixels={high} leave {fewest} to {most} tiles "
                f"of {tile} pixels; wanted at least one, and min_pixels <= max_pixels"
            )
        self.processor.min_patches, self.processor.max_patches = fewest, most

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if not 1 <= self.processor.min_patches <= self.processor.max_patches:
            yield (
                f"preprocessor_config.json cuts an image into {self.processor.min_patches} to "
                f"{self.processor.max_patches} tiles; wanted at least one"
            )

    def own_config(self) -> dict[str, Any]:
        return {"processor_class": "InternVLProcessor", "image_seq_length": self.of_tile}


FAMILY = Family(images=InternVLImages)
