"""Count the patches and the tokens that an image becomes, by the policy's processor."""

from __future__ import annotations

import math
from pathlib import Path

from PIL import Image

from rrgclinical.common import json_reader
from rrgpolicy.model.load import PREPROCESSOR, base_of_adapter, fetch, open_images, read_config
from rrgpolicy.model.tiny import TinyConfig
from rrgtrain.plan.sizes import Vision
from rrgtrain.schema import PolicySettings

IMAGE_PIXELS_MAX = 12_845_056
"""`longest_edge` of Qwen2.5-VL's preprocessor_config.json."""


def image_lengths(policy: PolicySettings, vision: Vision, size: tuple[int, int]) -> tuple[int, int]:
    """Return patches and tokens of an image of `size`, its width and height in pixels.

    Where a grid is cut they follow from the bounds of the area, its sides cut to whole tokens; else
    the processor itself prepares a grey image.
    Raises UserError where it cannot be read.
    """
    if vision.merge is not None:
        low, high = pixel_bounds(policy)
        side = vision.patch * vision.merge
        tokens = max(1, min(max(math.prod(size), low), high) // side**2)
        return tokens * vision.merge**2, tokens
    name = str(_directory(policy))
    images = open_images(name, read_config(name))
    if policy.min_pixels or policy.max_pixels:
        images.bound(policy.min_pixels, policy.max_pixels)
    pixels = images.encode([Image.new("RGB", size, (127, 127, 127))])
    assert pixels is not None
    return pixels.pixel_values.numel() // vision.patch_values, pixels.tokens[0]


def _directory(policy: PolicySettings) -> Path:
    """The policy's checkpoint, or the base of an adapter that has no processor of its own."""
    path = Path(policy.path)
    own = (path / PREPROCESSOR).is_file() or not (path / "adapter_config.json").is_file()
    return path if own else Path(base_of_adapter(policy.path))


def pixel_bounds(policy: PolicySettings) -> tuple[int, int]:
    """Return the smallest and largest area of an image, as recipe and checkpoint bound it."""
    low, high = 0, IMAGE_PIXELS_MAX
    file = _directory(policy) / PREPROCESSOR
    if policy.path == "tiny":
        low = high = TinyConfig().image_size ** 2
    elif file.is_file():

        def written() -> tuple[int, int]:
            stored = json_reader.read(file, dict)
            size = stored.get("size") or {}
            # the older names, which Qwen's own files have, go before `size` in transformers too
            return (
                int(stored.get("min_pixels") or size.get("shortest_edge", low)),
                int(stored.get("max_pixels") or size.get("longest_edge", high)),
            )

        low, high = fetch(str(file), written)
    return policy.min_pixels or low, policy.max_pixels or high
