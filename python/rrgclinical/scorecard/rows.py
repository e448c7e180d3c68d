"""Read the rows of CSV, TSV, JSONL, JSON and text files as cells by column."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader, spreadsheets
from rrgclinical.common.arguments import first_twice
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole_text

DELIMITERS = {".tsv": "\t,;", ".csv": ",;\t"}
"""Delimiters by a file's ending, see `delimiter_of`."""
MOST_CHARACTERS = 2**18
"""Of a report; one of a broken export, of 16 million, would be read for hours."""
# JSON's escapes can write half a character, which no file can hold.
_HALVES = re.compile("[\ud800-\udfff]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Row(dict[str, Any]):
    """The cells of a row by column, and where it stands in the file."""

    def __init__(self, cells: Mapping[str, Any], where: str) -> None:
        super().__init__(cells)
        self.where = where


def require_length(where: str, name: str, text: str) -> None:
    """Raise UserError for a report of more than MOST_CHARACTERS."""
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"{where}: {name} has {len(text):,} characters; wanted at most {MOST_CHARACTERS:,}, "
            "shorten it or take the row out"
        )


def read_rows(
    path: Path, split: str | None, filled: Iterable[str]
) -> tuple[list[Row], tuple[str, ...]]:
    """Read every row of a file, and notes; UserError where there is none.

    filled: columns that no row leaves blank; beside none of them a blank row may be a study.
    """
    try:
        text = read_whole_text(path, "utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        mend = "unpack it, or save it as UTF-8"
        raise UserError(f"{path} is not UTF-8 (byte {error.start}); {mend}") from error
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}:{number} holds a NUL, as UTF-16 does; save it as UTF-8 text")
    readers = {".csv": _csv, ".tsv": _csv, ".jsonl": _jsonl, ".ndjson": _jsonl, ".txt": _txt}
    if path.suffix.lower() in readers:
        rows = list(readers[path.suffix.lower()](path, text))
        while rows and not (
            rows[-1].keys().isdisjoint(filled)
            or any(not isinstance(v, str) or v.strip() for v in rows[-1].values())
        ):
            rows.pop()  # as a spreadsheet leaves below the last one
    elif path.suffix.lower() == ".json":
        rows = list(_json(path, text, split))
    else:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise UserError(f"{path} {ending}; wanted .csv, .tsv, .jsonl, .json or .txt")
    if not rows:
        raise UserError(f"{path} holds no row; wanted at least one report")
    repaired = sum(map(_repair, rows))
    line = f"{path}: half characters (lone surrogates) in {repaired} rows are read as U+FFFD."
    return rows, (line,) if repaired else ()


def _repair(row: Row) -> bool:
    whole = {name: _whole(value) for name, value in row.items()}
    changed = whole != dict(row)
    row.update(whole)
    return changed


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(v) for v in value]
    return _HALVES.sub("\ufffd", value) if isinstance(value, str) else value


def _csv(path: Path, text: str) -> Iterator[Row]:
    # not splitlines: U+2028 in a cell stays. Not io.StringIO: it holds 4 bytes a character
    lines: Iterator[str] = (line[0] for line in _LINE.finditer(text))
    first = next(lines, "")
    declared = spreadsheets.declared_separator(first)
    above = int(declared is not None)
    delimiter = spreadsheets.delimiter_of(first, DELIMITERS[path.suffix.lower()])
    if declared is None:
        lines = itertools.chain([first], lines)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        with spreadsheets.long_cells():
            header = spreadsheets.header_names(next(reader, []))
            rows = [(reader.line_num + above, cells) for cells in reader]
    except csv.Error as error:
        line = f"{path}:{reader.line_num + above} is no CSV ({error})"
        raise UserError(
            f"{line}; look for a quote that is not closed, or export it again"
        ) from error
    # a spreadsheet leaves columns without a name, and rows of separators, behind the last one
    twice = first_twice(filter(None, header))
    if twice is not None:
        raise UserError(f"{path} has two columns {twice!r}; rename one")
    while rows and len(rows[-1][1]) != len(header) and not any(map(str.strip, rows[-1][1])):
        rows.pop()
    for number, cells in rows:
        if not cells and len(header) != 1:
            continue
        # an empty line among rows of one column is its empty cell
        cells = cells or [""]
        where = f"{path}:{number}"
        if len(cells) != len(header):
            raise UserError(
                f"{where} has {len(cells)} cells, its header {len(header)}; quote cells that "
                "hold the delimiter"
            )
        yield Row(dict(zip(header, cells, strict=True)), where)


def _txt(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        yield Row({"id": str(number), "report": line.removesuffix("\r")}, f"{path}:{number}")


def _jsonl(path: Path, text: str) -> Iterator[Row]:
    # not splitlines: U+2028 may stand in a report
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            value = json_reader.parse(line, pairs=json_reader.once)
        except ValueError as error:
            raise UserError(f"{where} is no JSON ({error})") from error
        yield _object(_answer(value, where), where)


def _answer(value: Any, where: str) -> Any:
    """Return the report of a row of a batch, as OpenAI and vLLM write it, another row as it is."""
    if not isinstance(value, dict) or not value.keys() >= {"custom_id", "response"}:
        return value
    key, answer, error = value["custom_id"], value["response"], value.get("error")
    status = answer.get("status_code", 200) if isinstance(answer, dict) else None
    match answer:
        case {"body": {"choices": [{"message": {"content": str(text)}}]}} if (
            status == 200 and not error
        ):
            return {"id": key, "report": text}
    line = f"{where}: request {key!r} has the status {status}, error {str(error)[:80]}; wanted"
    raise UserError(f"{line} status 200 and one choice: run it again, or take the row out")


def _json(path: Path, text: str, split: str | None) -> Iterator[Row]:
    try:
        value = json_reader.parse(text, pairs=json_reader.once)
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error})") from error
    if isinstance(value, dict) and _is_rows(value.get("annotations")):
        # COCO's captions: beside `image_id` an `id` is the annotation's own
        value = [{k: v for k, v in row.items() if k != "id"} for row in value["annotations"]]
    if isinstance(value, dict) and any(value.values()) and all(map(_is_rows, value.values())):
        if split not in value:
            raise UserError(
                f"{path} has the splits {', '.join(map(str, value))}, not {split or 'one'}; choose "
                "with eval.split"
            )
        value = value[split]
    if isinstance(value, dict):
        for key, report in value.items():
            # a report of each kind: the file does not say which it holds
            where = f"{path}: {key!r}"
            cells = report if isinstance(report, dict) else {"report": report}
            # pandas' keys may be numbers of rows beside a column of ids
            yield Row({"id": key} | _object(cells, where), where)
        return
    if not isinstance(value, list):
        raise UserError(f"{path} holds a {type(value).__name__}; wanted rows, or an object by id")
    for number, row in enumerate(value):
        yield _object(row, f"{path}[{number}]")


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, dict) for v in value)


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise UserError(f"{where} is a {type(value).__name__}; wanted an object of columns")
    return Row(value, where)
