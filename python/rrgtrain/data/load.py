"""One door to every dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rrgtrain.data.iu_xray import load_iu_xray
from rrgtrain.data.nih import load_nih
from rrgtrain.data.study import Study
from rrgtrain.errors import UserError

SOURCES: dict[str, Callable[[Path, str], dict[str, list[Study]]]] = {
    "iu_xray": load_iu_xray,
    "nih": load_nih,
}
IMAGES = ("all", "none", "frontal")


def load_studies(source: str, root: str | Path, *, images: str = "all") -> dict[str, list[Study]]:
    """The studies of a dataset by split, in the order of its own files.

    `source` names the layout ("iu_xray", which is also the phantom's, or "nih"). `images` keeps
    "all" of them, only the current "frontal" ones, or "none", which does not look for any. Files
    are checked for presence, not decoded; `read_image` does that.

    Raises UserError, one line, for anything wrong with the arguments or the files.
    """
    if source not in SOURCES:
        raise UserError(f"source {source!r} is unknown; wanted one of {', '.join(SOURCES)}")
    if images not in IMAGES:
        raise UserError(f"images={images!r} is unknown; wanted one of {', '.join(IMAGES)}")
    directory = Path(root)
    if not directory.is_dir():
        seen = "is a file" if directory.exists() else "does not exist"
        raise UserError(
            f"{directory} {seen}; wanted the directory of the data set, in the layout of {source}"
        )
    return SOURCES[source](directory, images)
