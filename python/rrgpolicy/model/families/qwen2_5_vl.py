"""Qwen2.5-VL: its decoder is called with embeddings and positions of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rrgpolicy.model.families.qwen2 import Qwen2


class Qwen25VL(Qwen2):
    """Positions without the model's, which read the device for each run of image tokens."""

    windows = True
    embedded = True

    def positions(self, model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        is_image = inputs["input_ids"][0] == model.config.image_token_id
        merge = model.config.vision_config.spatial_merge_size
        return mrope_positions(is_image, inputs.get("image_grid_thw"), merge)


FAMILY = Qwen25VL()


def mrope_positions(is_image: Tensor, grid_thw: Tensor | None, merge: int) -> Tensor:
    """Temporal, height and width positions of a prompt, int64 [3, P].

    Args:
        is_image: bool [P], True on image tokens; every image is one run of them.
        grid_thw: int64 [images, 3], patches of each image in time, height and width; None
            without images.
        merge: patches per side that one token stands for.

    Text counts up on all axes alike. The tokens of an image share the temporal position at
    which it begins and take their row and column, counted from there; the text after it goes on
    at the largest position so far plus 1 (Qwen2.5-VL).

    Raises:
        ValueError: the runs of image tokens and the grids do not agree.
    """
    length = is_image.shape[0]
    grids = [] if grid_thw is None else (grid_thw // torch.tensor([1, merge, merge])).tolist()
    marks = is_image.tolist()
    pieces: list[Tensor] = []
    at = position = 0
    for t, h, w in grids:
        start = next((k for k in range(at, length) if marks[k]), length)
        pieces.append((torch.arange(start - at) + position).expand(3, -1))
        position += start - at
        count = t * h * w
        if not all(marks[start : start + count]) or start + count > length:
            raise ValueError(
                f"an image of {t} x {h} x {w} tokens begins at token {start} of {length}, where "
                "there are fewer image tokens: give one grid per run of image tokens"
            )
        index = torch.arange(count)
        # A still picture has one time step, so the temporal axis stays where the image begins.
        axes = torch.stack([index // (h * w), index // w % h, index % w])
        pieces.append(axes + position)
        position += max(h, w)
        at = start + count
    if any(marks[at:]):
        raise ValueError(
            f"image tokens after token {at}, where {len(grids)} image(s) end: give one grid per "
            "run of image tokens"
        )
    pieces.append((torch.arange(length - at) + position).expand(3, -1))
    return torch.cat(pieces, 1)
