"""Read the rows of a table of one's own, CSV or JSON lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rrgtrain.data.catalogue import Catalogue
from rrgtrain.data.problems import kind_of, parse_json
from rrgtrain.data.tables import long_cells
from rrgtrain.errors import UserError

Row = Mapping[str, Any]

CSV_SUFFIXES, JSONL_SUFFIXES = (".csv", ".tsv"), (".jsonl", ".ndjson")


def table_file(root: Path) -> Path:
    """Find the table at `root`: the file itself, or the one table of a directory."""
    if root.is_file():
        if root.suffix.lower() not in CSV_SUFFIXES + JSONL_SUFFIXES:
            raise UserError(f"{root}: wanted a .csv, .tsv or .jsonl file; save the table as one")
        return root
    suffixes = CSV_SUFFIXES + JSONL_SUFFIXES
    tables = sorted(p for p in root.iterdir() if p.suffix.lower() in suffixes and p.is_file())
    if len(tables) != 1:
        have = ", ".join(p.name for p in tables[:3]) + (", ..." if len(tables) > 3 else "")
        seen = f"{len(tables)} tables ({have})" if tables else "no .csv, .tsv or .jsonl file"
        raise UserError(f"{root} holds {seen}; name the file of your table as data.root")
    return tables[0]


def read_header(path: Path) -> list[str]:
    """Read the column names, a CSV's first row or the keys of JSON lines.

    UserError for a name that stands twice, and where there is none.
    """
    if path.suffix.lower() not in JSONL_SUFFIXES:
        header = next(_csv(path))
    else:
        header = list(dict.fromkeys(key for _, row in _json_lines(path) for key in row))
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice:
        raise UserError(f"{path}: the column {twice[0]!r} stands twice; rename one")
    if not any(header):
        raise UserError(f"{path}: no rows; wanted a header and a row for each study")
    return header


def read_rows(path: Path, catalogue: Catalogue) -> Iterator[tuple[int, Row]]:
    """Yield each row with its number.

    The header of a CSV is row 1, the first JSON line row 2. A row of another length is broken.
    """
    if path.suffix.lower() in JSONL_SUFFIXES:
        yield from enumerate((row for _, row in _json_lines(path)), 2)
        return
    rows = _csv(path)
    header = next(rows)
    for number, cells in enumerate(rows, 2):
        if len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True))
        elif cells:
            catalogue.add_broken(
                f"{path.name}: row {number}",
                f"has {len(cells)} cells; wanted {len(header)} as in the header, and quotes around "
                "text with separators",
            )


def _csv(path: Path) -> Iterator[list[str]]:
    number = 0
    try:
        with long_cells(), path.open(encoding="utf-8-sig", newline="") as lines:
            first = lines.readline()
            delimiter = max(",;\t", key=first.count)
            lines.seek(0)
            rows = csv.reader(lines, strict=True, delimiter=delimiter)
            header = next(rows, [])
            number = rows.line_num
            yield [name.strip() for name in header]
            for row in rows:
                number = rows.line_num
                yield row
    except csv.Error as error:
        raise UserError(f"{path}: not CSV after line {number} ({error}); export it again") from None
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; wanted a readable file") from None


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
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
        raise _not_utf8(path) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; wanted a readable file") from None


def _not_utf8(path: Path) -> UserError:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = f"byte 0x{line[error.start]:02x} in line {number}"
                return UserError(f"{path}: {byte} is not UTF-8; re-save it as UTF-8")
    return UserError(f"{path}: changed while it was read; read it again")
