"""Read CSV, JSON lines and R2Gen's `annotation.json`; add studies by shared rules."""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import io
import itertools
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rrgclinical.common import json_reader
from rrgclinical.common.arguments import first_twice
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import open_gzip, require_end
from rrgclinical.common.spreadsheets import (
    LONGEST_CELL,
    declared_separator,
    delimiter_of,
    header_names,
    long_cells,
)
from rrgclinical.labels import OBSERVATIONS, class_of_cell
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.problems import SPLITS, files_of, is_text, kind_of, names_of, parse_json, read_text
from rrgdata.sections import ReportSections
from rrgdata.study import ImageRef, Study

LONGEST_ROW = 2 * LONGEST_CELL

CONTEXT = ("indication", "technique", "comparison")
WITHOUT = {
    "findings": "without a findings section",
    "impression": "without an impression",
    "both": "without findings or impression",
}


def csv_rows(path: Path, *, delimiters: str = ",") -> Generator[list[str]]:
    """Yield the header, its names stripped, and the rows of a CSV, gzipped or not.

    Of `delimiters` the one that the first line has most of counts, before them the one of Excel's
    line "sep=;" above the header. UserError: a file that cannot be read, is not UTF-8 or not CSV.
    """
    number = 0
    opened: Callable[[Path], Any] = open_gzip if path.suffix == ".gz" else partial(open, mode="rb")
    try:
        require_end(path)
        with (
            long_cells(),
            io.TextIOWrapper(opened(path), encoding="utf-8-sig", newline="") as stream,
        ):
            lines = _Lines(stream)
            first = next(lines, "")
            delimiter = delimiter_of(first, delimiters)
            if not declared_separator(first):
                stream.seek(0)
            rows = csv.reader(lines, strict=True, delimiter=delimiter)
            lines.left = LONGEST_ROW
            header, number = next(rows, []), rows.line_num
            yield header_names(header)
            lines.left = LONGEST_ROW
            for row in rows:
                number, lines.left = rows.line_num, LONGEST_ROW
                yield row
    except csv.Error as error:
        raise UserError(f"{path}: not CSV after line {number} ({error}); export it again") from None
    except UnicodeDecodeError:
        with opened(path) as raw:
            raise not_utf8(path, raw) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{path}: breaks off, or is no gzip file; download it again") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; wanted a readable file") from None


class _Lines:
    """Give the lines of a file to csv.reader while no row has more than LONGEST_ROW characters.

    `left` is what the row may still take; whoever has a whole row resets it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.left = stream, LONGEST_ROW

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise csv.Error(f"row larger than {LONGEST_ROW} characters")
        if not line:
            raise StopIteration
        return line


def not_utf8(path: Path, lines: Iterable[bytes]) -> UserError:
    """Tell the first line that is not UTF-8."""
    for number, line in enumerate(lines, 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} in line {number}"
            return UserError(f"{path}: {byte} is not UTF-8; re-save it as UTF-8")
    return UserError(f"{path}: changed while it was read; read it again")


def whole_rows(
    path: Path, rows: Iterable[list[str]], length: int, catalogue: Catalogue
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each row; another length is broken, separators alone are none."""
    for number, row in enumerate(rows, 2):
        if len(row) == length and (length == 1 or any(map(str.strip, row))):
            yield number, row
        elif any(map(str.strip, row)):
            catalogue.add_broken(
                f"{path.name}: row {number}",
                f"has {len(row)} cells; wanted {length} as in the header, and quotes around text "
                "with separators",
            )


def read_csv(
    path: Path, columns: Sequence[str], catalogue: Catalogue, *, optional: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the named cells of each row; the header is row 1.

    A row with more or fewer cells than the header is broken. UserError: a file that `csv_rows`
    refuses, that lacks one of `columns`, or has no rows.
    """
    number = 1
    with closing(csv_rows(path)) as rows:
        header = next(rows)
        lacking = [name for name in columns if name not in header]
        if lacking:
            have = names_of(header) or "nothing"
            raise UserError(f"{path}: no column {lacking[0]!r}; it has {have}")
        cells = [(name, header.index(name)) for name in (*columns, *optional) if name in header]
        for number, row in whole_rows(path, rows, len(header), catalogue):
            yield f"{path.name}: row {number}", {name: row[index] for name, index in cells}
    if number == 1 and not catalogue.broken:
        raise UserError(f"{path}: no rows beneath the header; download it again")


def share_of(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32


def drawn_split(name: str) -> str:
    """Draw a split by the name alone: a tenth is val, a tenth test."""
    share = share_of(name)
    return "val" if share < 0.1 else ("test" if share < 0.2 else "train")


def first_of_groups(members: Iterable[tuple[str, Iterable[Path]]]) -> dict[str, str]:
    """Find the smallest name among those that share images, of each name.

    Whoever shares an image with one of them shares the name, whatever the order of the members.
    """
    above: dict[str, str] = {}
    owner: dict[Path, str] = {}

    def top(name: str) -> str:
        while above[name] != name:
            above[name] = name = above[above[name]]
        return name

    for name, images in members:
        above.setdefault(name, name)
        for image in images:
            low, high = sorted((top(name), top(owner.setdefault(image, name))))
            above[high] = low
    return {name: top(name) for name in above}


def cell_classes(cells: Mapping[str, Any], wrong: list[str]) -> tuple[int, ...] | None:
    """Read cells of CheXpert's CSV, by observation; None with a fault in `wrong`."""
    classes = [class_of_cell(cell) for cell in cells.values()]
    if None in classes:
        odd = list(cells)[classes.index(None)]
        wrong.append(f"has {cells[odd]!r} for {odd}; wanted 1, 0, -1 or nothing")
        return None
    return tuple(identity for identity in classes if identity is not None)


def listed_classes(value: Any, wrong: list[str]) -> tuple[int, ...] | None:
    """Read 14 class ids; None for none, or with a fault in `wrong`."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != len(OBSERVATIONS):
        size = f"{len(value)} of them" if isinstance(value, list) else kind_of(value)
        wrong.append(f"has labels as {size}; wanted a list of {len(OBSERVATIONS)} class ids")
        return None
    for name, label in zip(OBSERVATIONS, value, strict=True):
        if type(label) is not int or not 0 <= label <= 3:
            wrong.append(
                f"has label {label!r} for {name}; wanted 0 blank, 1 positive, 2 negative or 3 "
                "uncertain"
            )
            return None
    return tuple(value)


def add_study(
    study: Study,
    parts: ReportSections | None,
    where: str,
    settings: ReadSettings,
    catalogue: Catalogue,
) -> None:
    """Add a study with its wanted sections and views, or count its exclusion.

    parts: what its report says; None for a study that has labels alone. A section that says that
        nothing is there is empty, and counted.

    `study.images` are all its images. "frontal" keeps the frontal ones, so that a study whose
    views are not known is left out; "none" drops them.
    """
    texts = {"findings": "", "impression": "", "unheaded": ""}
    for name in (*texts, *CONTEXT):
        if name in CONTEXT or settings.sections in (name, "both"):
            text = getattr(parts, name, "")
            texts[name] = str(catalogue.read(text, name, where, context=name in CONTEXT))
    report = catalogue.report(ReportSections(**texts), settings.sections)
    images = study.images if settings.images != "none" else ()
    if settings.images == "frontal":
        images = tuple(image for image in images if image.view == "frontal")
    split, current = study.split, [image for image in images if not image.prior]
    if parts is not None and not report:
        catalogue.leave_out(WITHOUT[settings.sections], split=split)
    elif not is_text(report):
        catalogue.add_broken(where, "has a report that is not Unicode; download the file again")
    elif settings.images != "none" and not current:
        kind = "a frontal" if settings.images == "frontal" else "an"
        catalogue.leave_out(f"without {kind} image", split=split)
    elif not _any_broken(images, where, catalogue):
        context: dict[str, Any] = {name: texts[name] for name in CONTEXT}
        catalogue.add(replace(study, report=report or None, images=images, **context), where)


def _any_broken(images: tuple[ImageRef, ...], where: str, catalogue: Catalogue) -> bool:
    for image in images:
        defect = catalogue.image_defect(image.path)
        if defect:
            catalogue.add_broken(where, f"has image '{image.path}', {defect}; copy it there again")
            return True
    return False


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


Row = Mapping[str, Any]

CSV_SUFFIXES, JSONL_SUFFIXES = (".csv", ".tsv"), (".jsonl", ".ndjson")
DELIMITERS = ",;\t"
# As Python writes them: any other escape, or a line end, is none of its texts.
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})"
_PLAIN = r"\\\n\r\0\ud800-\udfff"
_PART = rf"""'(?:[^'{_PLAIN}]|{_ESCAPE})*'|"(?:[^"{_PLAIN}]|{_ESCAPE})*"|nan|NaN|NaT|None|<NA>"""
_PARTS = re.compile(_PART)
# NumPy parts by blanks what Python parts by commas
_LIST = re.compile(rf"[\[(]\s*(?:{_PART})(?:(?:\s*,\s*|\s+)(?:{_PART}))*\s*,?\s*[\])]")
_CONTAINER = re.compile(r"(?:\[\s*|\{\s*|array\(|b)+['\"]")


def table_file(root: Path) -> Path:
    """Find the table at `root`: the file itself, or the one table of a directory."""
    if root.is_file():
        if root.suffix.lower() not in CSV_SUFFIXES + JSONL_SUFFIXES:
            raise UserError(f"{root}: wanted a .csv, .tsv or .jsonl file; save the table as one")
        return root
    suffixes = CSV_SUFFIXES + JSONL_SUFFIXES
    tables = [p for p in files_of(root, "*") if p.suffix.lower() in suffixes and p.is_file()]
    if len(tables) != 1:
        have = ", ".join(p.name for p in tables[:3]) + (", ..." if len(tables) > 3 else "")
        content = f"{len(tables)} tables ({have})" if tables else "no .csv, .tsv or .jsonl file"
        raise UserError(f"{root} holds {content}; name the file of your table as data.root")
    return tables[0]


def read_header(path: Path) -> list[str]:
    """Read the column names, a CSV's first row or the keys of JSON lines.

    UserError for a name that stands twice, and where there is none.
    """
    if path.suffix.lower() not in JSONL_SUFFIXES:
        header = next(csv_rows(path, delimiters=DELIMITERS))
    else:
        header = list(dict.fromkeys(key for _, row in json_lines(path) for key in row))
    # a spreadsheet leaves columns without a name behind the last one
    twice = first_twice(name for name in header if name)
    if twice is not None:
        raise UserError(f"{path}: the column {twice!r} stands twice; rename one")
    if not any(header):
        raise UserError(f"{path}: no rows; wanted a header and a row for each study")
    return header


def read_rows(path: Path, catalogue: Catalogue) -> Iterator[tuple[int, Row]]:
    """Yield each row with its number.

    The header of a CSV is row 1, the first JSON line row 2. A row of another length is broken.
    """
    if path.suffix.lower() in JSONL_SUFFIXES:
        yield from enumerate((row for _, row in json_lines(path)), 2)
        return
    rows = csv_rows(path, delimiters=DELIMITERS)
    header = next(rows)
    for number, cells in whole_rows(path, rows, len(header), catalogue):
        yield number, dict(zip(header, cells, strict=True))


def pictured(path: Path) -> list[str]:
    """List the columns that name a picture in one of the first rows."""
    ends = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".dcm", ".dicom")
    rows = (row for _, row in itertools.islice(read_rows(path, Catalogue()), 20))
    return [n for row in rows for n, cell in row.items() if str(cell).lower().endswith(ends)]


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line that is not blank; else UserError."""
    number = 0
    try:
        require_end(path)
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = parse_json(line, f"{path}: line {number}")
                    if not isinstance(row, dict):
                        raise UserError(
                            f"{path}: line {number} is {kind_of(row)}; wanted an object a line"
                        )
                    yield number, row
    except UnicodeDecodeError:
        with path.open("rb") as lines:
            raise not_utf8(path, lines) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; wanted a readable file") from None


def unlisted(value: Any) -> Any:
    """Return the list that a text is, anything else as it is.

    Lists are those that JSON, Python and NumPy write. ValueError for a text that begins as a list,
    an object or bytes do, and is no list of texts.
    """
    text = value.strip() if isinstance(value, str) else ""
    if text.startswith("["):
        with suppress(ValueError):
            return json_reader.parse(text)
    parts = _PARTS.findall(text) if _LIST.fullmatch(text) else []
    if any(part[0] in "'\"" for part in parts):
        return [ast.literal_eval(part) if part[0] in "'\"" else None for part in parts]
    if _CONTAINER.match(text):
        raise ValueError("a list or an object written as text, and no whole list of texts")
    return value
