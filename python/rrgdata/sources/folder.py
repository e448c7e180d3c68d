"""Finds the images below a directory and makes studies of them, without references.

Images are files named .png, .jpg, .jpeg, .tif, .tiff, .dcm or .dicom in any case, and files without
a suffix, or with a number for one, as a UID ends, that begin as DICOM does, as scanners export
them. Hidden files are none, links to directories are not followed; everything left out is counted.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError, odd_text
from rrgdata.catalogue import Catalogue
from rrgdata.images.dicom import is_dicom, view_of
from rrgdata.problems import names_of
from rrgdata.sources.tables import read_header, read_rows
from rrgdata.study import ImageRef, Study

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
SUFFIXES = (*PICTURES, ".dcm", ".dicom")
CONTEXT = ("indication", "technique", "comparison")


@dataclass(frozen=True)
class Folder:
    """Studies below a directory, sorted by id; `left_out` counts other files by suffix."""

    root: Path
    studies: list[Study]
    left_out: Counter[str]


def read_folder(root: str | Path, study: str = "file") -> Folder:
    """Find the studies below `root`.

    study: "file" makes every image a study, its id the path below `root`; "folder" makes the images
        that lie in one folder a study, its id that folder's path ("." for `root` itself).

    Raises:
        UserError: no such directory, one that cannot be read, or no image below it.
    """
    root = Path(root).expanduser()
    if not root.is_dir():
        state = "is a file" if root.exists() else "is no directory"
        raise UserError(f"{root} {state}; wanted the directory that the images lie in")
    images: dict[str, list[ImageRef]] = {}
    left_out: Counter[str] = Counter()
    for folder, inner, names in os.walk(root, onerror=_unreadable):
        inner.sort()
        left_out["links to directories"] += sum(Path(folder, name).is_symlink() for name in inner)
        for name in sorted(names):
            path = Path(folder, name)
            if not _is_image(path):
                left_out[path.suffix.lower() or "files without a suffix"] += 1
                continue
            if odd_text(str(path)):
                raise UserError(
                    f"{path}: its name is not UTF-8, as its report's id must be; rename it"
                )
            key = (path if study == "file" else path.parent).relative_to(root).as_posix()
            view = "" if path.suffix.lower() in PICTURES else view_of(path)
            images.setdefault(key, []).append(ImageRef(path, view))
    if not images:
        raise UserError(f"no image below {root}; wanted files named {', '.join(SUFFIXES)}")
    studies = [Study(key, "", None, None, tuple(views)) for key, views in sorted(images.items())]
    return Folder(root, studies, +left_out)


def _unreadable(error: OSError) -> None:
    raise UserError(f"{error.filename}: {error.strerror}; make it readable, or name another one")


def _is_image(path: Path) -> bool:
    if path.name.startswith(".") or path.name == "DICOMDIR":
        return False
    if path.suffix.lower() in SUFFIXES:
        return True
    if path.suffix and not path.suffix[1:].isdigit():
        return False
    try:
        return path.is_file() and is_dicom(path)
    except OSError:
        return True  # its reason is given where images are read


def frontal_alone(studies: Sequence[Study], root: Path) -> list[Study]:
    """Return the studies without their lateral images; UserError where none is left."""
    frontal = [
        replace(s, images=tuple(i for i in s.images if i.view != "lateral")) for s in studies
    ]
    left = [study for study in frontal if study.images]
    if not left:
        raise UserError(f"every image below {root} is lateral; say data.images=all to show them")
    return left


def with_context(folder: Folder, table: str | Path) -> tuple[list[Study], int]:
    """Give studies the sections of a CSV; return them and the CSV's count.

    The column `id` or `path` holds a study's id, or the path of one of its images (absolute, or
    below the folder); `indication`, `technique` and `comparison` are the sections, any of them. A
    warning counts cells that say that nothing is there.

    Raises:
        UserError: a file that is no such CSV, a row for no study, or two for one study.
    """
    places = _places(folder)
    sections: dict[int, dict[str, Any]] = {}
    for number, key, row in _rows(Path(table).expanduser()):
        place, where = places.get(key), f"{table}: row {number}"
        if place is None:
            fault = f"{key!r} is no study or image below {folder.root}"
            raise UserError(f"{where}: {fault}; delete the row")
        if place in sections:
            raise UserError(f"{where}: a second row for {key!r}; leave one of them")
        sections[place] = row
    studies = [replace(s, **sections.get(i, {})) for i, s in enumerate(folder.studies)]
    return studies, len(sections)


def _places(folder: Folder) -> dict[str, int]:
    places = {}
    for index, study in enumerate(folder.studies):
        for image in study.images:
            places[image.path.relative_to(folder.root).as_posix()] = index
            places[str(image.path.absolute())] = index
        places[study.id] = index
    return places


def _rows(table: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Number, id or path, and sections of each row."""
    columns, broken = read_header(table), Catalogue()
    key = next((name for name in ("id", "path") if name in columns), "")
    names = [name for name in CONTEXT if name in columns]
    if not key or not names:
        raise UserError(
            f"{table}: the columns are {names_of(columns)}; wanted id or path, and any of "
            f"{', '.join(CONTEXT)}"
        )
    for number, row in read_rows(table, broken):
        where = f"{table.name}: row {number}"
        context = {
            name: str(broken.read(row.get(name), name, where, context=True)) for name in names
        }
        if odd := next((name for name, text in context.items() if odd_text(text)), None):
            raise UserError(f"{table.parent / where}: {odd} has a NUL or no Unicode; wanted text")
        yield number, str(row.get(key, "")), context
    for line in broken.nothing.lines():
        warnings.warn(line, stacklevel=2)
    if broken.broken:
        raise UserError(f"{table.parent / broken.broken[0].where} {broken.broken[0].why}")
