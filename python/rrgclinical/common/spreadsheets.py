"""Undo what spreadsheets and pandas do to tables: "sep=;", long cells, float ids."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal

_SEPARATOR = re.compile(r'\ufeff?"?sep=([^\r\n"])"?[\r\n]*', re.IGNORECASE)
_FLOAT = re.compile(r"[0-9]{1,40}(\.[0-9]*)?(e\+?[0-9]{1,2})?", re.IGNORECASE)
_ROUNDED = re.compile(r"[0-9](?:\.([0-9]*))?e\+([0-9]{1,3})|[0-9]{16,}\.0", re.IGNORECASE)
LOST_DIGITS = "its digits are lost; write the column as text where the table was made"
EXACT = 2**53
"""Least whole number from which on a float may stand for several."""
LONGEST_CELL = 2**24
"""Characters of a cell; Python's own limit of 131,072 is for tables without reports, and without
a limit an unclosed quote would read the rest of a file as one cell."""


def declared_separator(line: str) -> str | None:
    """Return the delimiter that Excel's first line "sep=;" names, None for any other line."""
    declared = _SEPARATOR.fullmatch(line)
    return declared[1] if declared else None


def delimiter_of(first: str, delimiters: str) -> str:
    """Return what "sep=;" declares, else that of `delimiters` which the first line has most of.

    Of equally many the earlier one counts.
    """
    return declared_separator(first) or max(delimiters, key=first.count)


def header_names(cells: Sequence[str]) -> list[str]:
    """Strip the names of columns of blanks and byte order marks.

    A file saved twice as "UTF-8 with BOM" has two.
    """
    return [name.strip().strip("\ufeff").strip() for name in cells]


@contextmanager
def long_cells() -> Iterator[None]:
    """Have `csv` read cells of up to LONGEST_CELL characters, and put its limit back."""
    limit = csv.field_size_limit(LONGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def lost_digits(text: str) -> bool:
    """Tell an id that a reader of numbers, or Excel, left fewer digits."""
    rounded = _ROUNDED.fullmatch(text.strip())
    if rounded is None or rounded[2] is None:
        return rounded is not None
    return not len(rounded[1] or "") >= int(rounded[2]) < 16


def whole_number(text: str) -> str | None:
    """Return the digits of an id, None where it is no whole number.

    Digits alone stay as they are. "50414267.0" and "5.0414267e7", as pandas writes an id of a
    column with gaps, are 50414267; None from 2**53 on, where such a float has lost digits.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return text
    if not _FLOAT.fullmatch(text):
        return None
    number = Decimal(text)
    whole = number == number.to_integral_value() and number < EXACT
    return str(int(number)) if whole else None
