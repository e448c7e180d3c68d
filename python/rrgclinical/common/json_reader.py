"""Read JSON that others wrote; all that is wrong is a ValueError."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rrgclinical.common.arguments import first_twice

# No float holds an integer of more digits, and what reads one as a float would raise OverflowError.
_DIGITS = 308
_LONG = re.compile(rf"\d{{{_DIGITS + 1}}}")
DEEPEST = 100
"""Levels of nesting that are read; what walks through more would meet Python's limit."""
LARGEST = 1 << 30
"""Bytes of a file that are read; one that is larger was not written by a run."""

Pairs = list[tuple[str, Any]]


def parse(
    content: str | bytes,
    kind: type = object,
    *,
    pairs: Callable[[Pairs], Any] | None = None,
    constant: Callable[[str], Any] | None = None,
) -> Any:
    """Parse one JSON value of type `kind`.

    Bytes are UTF-8, with or without byte order mark.

    pairs, constant: `object_pairs_hook` and `parse_constant` of `json.loads`.

    Raises ValueError, in one line, for anything else: also for bytes that are not UTF-8, for
    nesting of more than DEEPEST levels, and for an integer that no float holds.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        integer = _short if _LONG.search(text) else None
        value = json.loads(
            text, object_pairs_hook=pairs, parse_constant=constant, parse_int=integer
        )
        if text.count("[") + text.count("{") > DEEPEST and _is_deep(value):
            raise RecursionError
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    if not isinstance(value, kind):
        raise ValueError(f"JSON of a {type(value).__name__}, wanted a {kind.__name__}")
    return value


def once(pairs: Pairs) -> dict[str, Any]:
    """Make an object of its pairs; ValueError for a key that stands twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = first_twice(key for key, _ in pairs)
        raise ValueError(f"the key {twice!r} stands twice in one object; keep one")
    return members


def read(path: str | Path, kind: type = object) -> Any:
    """Parse a file as `parse` does; ValueError as there, OSError where it cannot be read."""
    path = Path(path)
    kind_of_file = path.stat().st_mode  # a pipe would be waited for where it is opened
    if not (stat.S_ISREG(kind_of_file) or stat.S_ISDIR(kind_of_file)):
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST >> 20} MiB")
    return parse(content, kind)


def _is_deep(value: Any) -> bool:
    """Tell whether lists and objects stand more than DEEPEST levels deep."""
    level = [v for v in (value,) if isinstance(v, dict | list)]
    for _ in range(DEEPEST):
        parts = (v.values() if isinstance(v, dict) else v for v in level)
        level = [v for part in parts for v in part if isinstance(v, dict | list)]
    return bool(level)


def _short(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)
