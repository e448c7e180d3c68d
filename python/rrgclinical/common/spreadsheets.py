"""Undo what spreadsheets and pandas do to tables: a first line "sep=;", float ids."""

from __future__ import annotations

import re
from decimal import Decimal

_SEPARATOR = re.compile(r'\ufeff?"?sep=([^\r\n"])"?[\r\n]*', re.IGNORECASE)
_FLOAT = re.compile(r"[0-9]{1,40}(\.[0-9]*)?(e\+?[0-9]{1,2})?", re.IGNORECASE)
EXACT = 2**53
"""Least whole number from which on a float may stand for several."""


def declared_separator(line: str) -> str | None:
    """Return the delimiter that Excel's first line "sep=;" names, None for any other line."""
    declared = _SEPARATOR.fullmatch(line)
    return declared[1] if declared else None


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
