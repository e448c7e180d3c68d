"""Data sets read as a recipe reads them, for tests."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from rrgdata import Catalogue, ReadSettings, Study, load_studies
from rrgtrain.errors import UserError


def table(name: str) -> Any:
    cases = Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(cases)[name]


def catalogue_of(source: str, root: Path, **wanted: Any) -> Catalogue:
    """The catalogue of a data set; `wanted` are fields of `ReadSettings`."""
    return load_studies(source, root, ReadSettings(**wanted))


def studies_under(source: str, root: Path, **wanted: Any) -> dict[str, list[Study]]:
    """The studies of a data set, which must hold no broken one."""
    catalogue = catalogue_of(source, root, **wanted)
    catalogue.check(root)
    return catalogue.studies


def by_id(catalogue: Catalogue) -> dict[str, Study]:
    return {s.id: s for studies in catalogue.studies.values() for s in studies}


def every(source: str, root: Path, **wanted: Any) -> dict[str, Study]:
    return {s.id: s for of in studies_under(source, root, **wanted).values() for s in of}


def refused(source: str, root: Path, *parts: str, load: Any = catalogue_of, **wanted: Any) -> str:
    """The data set cannot be read at all: return the one line, which says these parts."""
    with pytest.raises(UserError) as caught:
        load(source, root, **wanted)
    line = str(caught.value)
    assert "\n" not in line
    for part in parts:
        assert part in line
    return line


told = partial(refused, load=studies_under)
"""It cannot be read, or holds a broken study."""


def broken(catalogue: Catalogue, place: str, why: str) -> None:
    """One study is broken, at this place and for this reason; others are there."""
    (only,) = catalogue.broken
    assert place in only.where and re.search(why, only.why)
    assert any(catalogue.studies.values())
