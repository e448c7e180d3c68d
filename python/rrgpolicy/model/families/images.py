"""`ImageRule`: how a family's images become arguments of its forward and tokens of its prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rrgclinical.common.errors import UserError

# More pixels than any radiograph has: a bound of the file, and no image, is wrong.
_AREA = 2**28


@dataclass(frozen=True)
class Pixels:
    """The images of a prompt: the forward's arguments, and how many tokens each image gets.

    inputs: as the family's image processor gives them, pixel_values fp32 among them. tokens: of
    each image, in order. pictures: what they were made of, where `ImageRule.keeps`.
    """

    inputs: Mapping[str, Tensor]
    tokens: tuple[int, ...]
    pictures: tuple[Image.Image, ...] = ()

    @property
    def pixel_values(self) -> Tensor:
        return self.inputs["pixel_values"]

    def pin_memory(self) -> Pixels:
        """Copy the pixels to page-locked memory, from where a GPU reads while others compute."""
        pinned = {**self.inputs, "pixel_values": self.pixel_values.pin_memory()}
        return Pixels(pinned, self.tokens, self.pictures)


class ImageRule:
    """Prepare images as the family's own processor does, without packages that it imports.

    The defaults are Qwen2-VL's: patches of a grid. reads: the image processor of transformers, of
    its kind that works on PIL images. options: arguments with which the family's processor calls
    it. together: a study's images go through it in one call, since one changes what the others
    become. arguments: what the forward takes of what it gives. keeps: `Pixels` hold the pictures
    too, for a sampler that reads them itself.
    """

    reads = "Qwen2VLImageProcessorPil"
    options: Mapping[str, Any] = {}
    together = False
    arguments: tuple[str, ...] = ("pixel_values", "image_grid_thw")
    keeps = False

    def __init__(self, processor: Any, config: Any) -> None:
        self.processor, self.config = processor, config

    def encode(self, pictures: Iterable[Image.Image]) -> Pixels | None:
        """Encode RGB pictures of one study, each as it comes; None without any.

        Raises ValueError for a picture that the processor does not take.
        """
        batches = [[*pictures]] if self.together else ([picture] for picture in pictures)
        each = [self._encoded(batch) for batch in batches if batch]
        if len(each) < 2:
            return each[0] if each else None
        names = each[0].inputs
        joined = {name: torch.cat([part.inputs[name] for part in each]) for name in names}
        tokens = tuple(n for part in each for n in part.tokens)
        return Pixels(joined, tokens, tuple(p for part in each for p in part.pictures))

    def _encoded(self, pictures: list[Image.Image]) -> Pixels:
        called = [pictures] if self.together else pictures
        encoded = self.processor(called, return_tensors="pt", **self.options)
        tokens = tuple(self.tokens(encoded))
        inputs = {k: v for k, v in encoded.items() if k in self.arguments}
        return Pixels(inputs, tokens, tuple(pictures) if self.keeps else ())

    def tokens(self, encoded: Mapping[str, Any]) -> list[int]:
        """Count the tokens of each image of what the processor gave."""
        merged: Tensor = encoded["image_grid_thw"].prod(1) // self.processor.merge_size**2
        return [int(n) for n in merged]

    def marks(self, tokenizer: Any, image_token: int) -> tuple[str, str]:
        """Name the chat template's mark of an image, and what replaces it.

        The latter holds the image's token once, whatever the image's count.
        """
        mark = str(tokenizer.convert_ids_to_tokens(image_token))
        return mark, mark

    @property
    def area(self) -> int:
        """The pixels to which a larger image is scaled down."""
        return int(self.processor.size["longest_edge"])

    @property
    def sizes(self) -> str:
        size = self.processor.size
        return f"Images have {size['shortest_edge']} to {size['longest_edge']} pixels."

    def bound(self, low: int | None, high: int | None) -> None:
        """Set the area in pixels of scaled images; None leaves a bound alone.

        Raises UserError for bounds that leave no room, or that the family has no use for.
        """
        size = {
            "shortest_edge": low or int(self.processor.size["shortest_edge"]),
            "longest_edge": high or int(self.processor.size["longest_edge"]),
        }
        smallest = (self.processor.patch_size * self.processor.merge_size) ** 2
        if not smallest <= size["shortest_edge"] <= size["longest_edge"]:
            raise UserError(
                f"policy.min_pixels={size['shortest_edge']}, "
                f"policy.max_pixels={size['longest_edge']}; wanted {smallest} <= min_pixels <= "
                "max_pixels"
            )
        self.processor.size = size

    def faults(self) -> Iterator[str]:
        """Say in what the processor's file does not fit the vision tower."""
        vision = self.config.vision_config
        yield from self.other("patch_size", vision.patch_size)
        yield from self.other("merge_size", vision.spatial_merge_size)
        yield from self.other("temporal_patch_size", vision.temporal_patch_size)
        bounds = [self.processor.size.get(edge) for edge in ("shortest_edge", "longest_edge")]
        if not all(type(area) is int and 0 < area <= _AREA for area in bounds):
            yield (
                f"preprocessor_config.json bounds the pixels of an image by {bounds}; wanted whole "
                f"numbers up to {_AREA:,}"
            )

    def other(self, key: str, fitting: Any) -> Iterator[str]:
        """Say that a value of the processor does not fit the tower."""
        if (own := getattr(self.processor, key)) != fitting:
            yield (
                f"{key} of preprocessor_config.json is {own}, and the vision tower of config.json "
                f"wants {fitting}"
            )

    def own_config(self) -> dict[str, Any]:
        """Make what processor_config.json tells the family's own processor; empty for none."""
        return {}


class Squares(ImageRule):
    """Images in squares of the tower's size."""

    @property
    def side(self) -> int:
        size = self.config.vision_config.image_size
        return int(size if isinstance(size, int) else size[0])

    @property
    def across(self) -> int:
        """The patches along a square's side."""
        patch = self.config.vision_config.patch_size
        return self.side // int(patch if isinstance(patch, int) else patch[0])

    @property
    def area(self) -> int:
        return self.side**2

    @property
    def sizes(self) -> str:
        return f"Images are scaled to {self.side} x {self.side} pixels."

    def bound(self, low: int | None, high: int | None) -> None:
        pixels = f"policy.min_pixels={low}, policy.max_pixels={high}"
        raise UserError(
            f"{pixels}, but a {self.config.model_type} takes no bounds: {self.sizes[:-1]}; pass "
            "policy.min_pixels=null policy.max_pixels=null"
        )

    def faults(self) -> Iterator[str]:
        size = self.processor.size
        sides = (size.get("height"), size.get("width"))
        if sides != (self.side, self.side):
            yield (
                f"size of preprocessor_config.json is {sides[0]} x {sides[1]}, and the vision "
                f"tower of config.json wants {self.side} x {self.side}"
            )
