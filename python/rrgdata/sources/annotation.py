"""Read R2Gen's `annotation.json`: lists of entries by split."""

from __future__ import annotations

import os.path
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgdata.problems import SPLITS, parse_json, read_text

HEAD = 1 << 16


def read_annotation(root: Path, layout: str) -> tuple[Path, dict[str, Any]]:
    """Read the annotation that is the data set; UserError where there is none."""
    path = root / "annotation.json"
    if not path.is_file():
        raise UserError(f"{path} not found; wanted a directory in R2Gen's {layout} layout")
    annotation = parse_json(read_text(path), str(path))
    if not isinstance(annotation, dict) or not annotation:
        raise UserError(f"{path}: wanted an object with the splits {', '.join(SPLITS)}")
    return path, annotation


def is_outside(path: str) -> bool:
    """Tell a path that leads out of the folder it is relative to."""
    return os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == ".."


def read_split(
    path: Path, name_of: Callable[[dict[str, Any]], str | None], what: str
) -> dict[str, str] | None:
    """Read each study's split from an annotation beside the data; None without one.

    name_of: gives an entry's study, None where it does not name `what` is read.
    """
    if not path.is_file():
        return None
    annotation = parse_json(read_text(path), str(path))
    split: dict[str, str] = {}
    for name in SPLITS:
        entries = annotation.get(name, []) if isinstance(annotation, dict) else None
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise UserError(f"{path}: no list {name!r}; wanted R2Gen's layout, train, val and test")
        for study in map(name_of, entries):
            if study is None:
                raise UserError(f"{path}: an entry of {name} names no {what}")
            if split.setdefault(study, name) != name:
                raise UserError(f"{path}: {study} is in {split[study]} and {name}; keep it in one")
    return split


def names_subjects(root: Path) -> bool | None:
    """Tell whether the root's annotation has subjects, as only MIMIC's; None: no file.

    R2Gen's two annotations have one name; a subject is looked for at the beginning of the file.
    """
    path = root / "annotation.json"
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return b'"subject_id"' in stream.read(HEAD)
