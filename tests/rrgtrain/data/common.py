"""Data sets read as a recipe reads them, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rrgtrain.data import Catalogue, Study, Wanted, load_studies


def catalogue_of(source: str, root: Path, **wanted: Any) -> Catalogue:
    """The catalogue of a data set; `wanted` are fields of `Wanted`."""
    return load_studies(source, root, Wanted(**wanted))


def studies_under(source: str, root: Path, **wanted: Any) -> dict[str, list[Study]]:
    """The studies of a data set, which must hold no broken one."""
    catalogue = catalogue_of(source, root, **wanted)
    catalogue.check(root)
    return catalogue.studies
