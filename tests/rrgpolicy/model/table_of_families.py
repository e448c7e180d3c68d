"""The table of the docs' page "Backbones", written from the list of families that tests hold.

`python -m tests.rrgpolicy.model.table_of_families` writes it into the page.
"""

from __future__ import annotations

from pathlib import Path

from rrgpolicy import model
from tests.rrgpolicy.model.families import SORTS, Sort

MODEL = Path(model.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "backbones.md"
BEGIN = "<!-- written by tests/rrgpolicy/model/table_of_families.py -->\n"
END = "<!-- end -->\n"
WAYS = {"row": "a row", "cache": "a cache", "none": "none"}


def _row(name: str, sort: Sort) -> str:
    layers = {**sort.text}
    kinds = [
        ("window", "sliding_window" in layers and layers["sliding_window"] is not None),
        ("chunks", "attention_chunk_size" in layers),
        ("linear attention", "linear_attention" in layers.get("layer_types", ())),
        ("convolutions", "conv" in layers.get("layer_types", ())),
        ("experts", any("experts" in key for key in layers)),
    ]
    has = ", ".join(kind for kind, is_there in kinds if is_there) or "full attention"
    module = f"families/{name}.py"
    module = f"`{module}`" if (MODEL / module).is_file() else "none"
    images = "images" if sort.sees else "text"
    cells = (sort.config.removesuffix("Config"), images, has, WAYS[sort.ways[0]], module)
    return f"| {' | '.join(cells)} |\n"


def table() -> str:
    """Write a row for each family of the list."""
    head = ("family", "reads", "layers", "a prompt is shared by", "a module of its own")
    rule = f"{'|---' * len(head)}|\n"
    return f"| {' | '.join(head)} |\n{rule}" + "".join(_row(*entry) for entry in SORTS.items())


def written(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
