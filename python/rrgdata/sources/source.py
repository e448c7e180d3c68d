"""Describe a source: a layout of files, its loader, what is said of its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rrgdata.catalogue import Catalogue, ReadSettings

Loader = Callable[[Path, ReadSettings, Catalogue], None]


@dataclass(frozen=True)
class Published:
    """Sizes by split, or by several, as "train+val" or "all": studies and images, None unknown."""

    sizes: Mapping[str, tuple[int | None, int | None]]
    counted: str
    """The studies that were counted, and by whom."""
    url: str


@dataclass(frozen=True)
class Source:
    """Describe one layout, the `SOURCE` of a module of this folder."""

    name: str
    load: Loader
    marks: tuple[str, ...] = ()
    """Files that only this layout has, as globs beneath the root."""
    holds: Callable[[Path], bool | None] | None = None
    """Recognises a root in which no layout's marks are."""
    may_be_file: bool = False
    """The root may be a file; among directories such a layout is guessed last."""
    reports_apart: bool = False
    """`data.reports` is for it."""
    priors: bool = False
    """`data.prior` is for it: it says which images are of an earlier study."""
    terms: str = "its owner's terms"
    """Under which the data are used, for the card of a model that was trained on them."""
    published: Published | None = None
