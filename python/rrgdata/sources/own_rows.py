"""Read the rows of a table of one's own, CSV or JSON lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import require_end
from rrgdata.catalogue import Catalogue
from rrgdata.problems import files_of, first_twice, kind_of, parse_json
from rrgdata.sources.tables import csv_rows, not_utf8, whole_rows

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
