"""A contact sheet: images of a phantom dataset above their reports."""

from __future__ import annotations

import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from rrgclinical.common import json_reader


def phantom_sheet(
    directory: str | Path, n: int = 12, *, columns: int = 4, tile: int = 224, split: str = "test"
) -> Image.Image:
    """Draw the first `n` studies of a split as one RGB image.

    All views of a study stand side by side in tiles of `tile` pixels, the report below. Studies
    are laid out in `columns` columns.
    """
    root = Path(directory)
    entries = json_reader.read(root / "annotation.json", dict)[split][:n]
    if not entries:
        raise ValueError(f"{root} has no {split} studies; wanted a split with at least one")
    views = max(len(entry["image_path"]) for entry in entries)
    width = tile * views
    texts = [textwrap.fill(entry["report"], width=max(12, width // 6)) for entry in entries]
    below = 14 * max(text.count("\n") + 1 for text in texts) + 10
    rows = -(-len(entries) // columns)
    sheet = Image.new("RGB", (columns * (width + 8) + 8, rows * (tile + below) + 8), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    for index, entry in enumerate(entries):
        left = 8 + (index % columns) * (width + 8)
        top = 8 + (index // columns) * (tile + below)
        for view, path in enumerate(entry["image_path"]):
            with Image.open(root / "images" / path) as image:
                shown = image.convert("RGB").resize((tile, tile), Image.Resampling.BICUBIC)
            sheet.paste(shown, (left + view * tile, top))
        pen.multiline_text((left, top + tile + 3), texts[index], fill="black", font=font, spacing=1)
    return sheet
