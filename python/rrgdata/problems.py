"""Read files and count every defect; the first is told in full."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole

SHOWN = 50
SPLITS = ("train", "val", "test")
_HALF = re.compile("[\ud800-\udfff]")


def first_of(problems: list[str]) -> str:
    """Write the first problem and how many more there are."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return problems[0] + more


def names_of(names: Sequence[str]) -> str:
    """Write names of columns, the first 50 of them."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def check_file(path: Path, problems: list[str]) -> None:
    """Raise UserError where a file has problems."""
    if problems:
        raise UserError(f"{path}: {first_of(problems)}")


def files_of(folder: Path, pattern: str) -> list[Path]:
    """List the files of a pattern in order, without hidden ones."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def only_file(root: Path, pattern: str, rest: str) -> Path:
    """Find the one file of a pattern; UserError, ended by `rest`, for none or several."""
    files = files_of(root, pattern)
    if len(files) != 1:
        have = f"{len(files)} files" if files else "no file"
        raise UserError(f"{root} has {have} {pattern}{rest}")
    return files[0]


def read_text(path: Path) -> str:
    """Read a file as UTF-8, with or without byte order mark; else UserError."""
    try:
        return read_whole(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UserError(
            f"{path}: byte 0x{byte:02x} at offset {error.start} is not UTF-8; re-save it as UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; wanted a readable file") from None


def parse_json(text: str, where: str, *, keep: Collection[str] = ()) -> Any:
    """Parse JSON; UserError at a syntax error or a key given twice.

    With `keep`, an object holds these keys and those of inner objects alone, so that a file of
    many records with keys that nobody reads takes little memory.
    """

    def once(pairs: json_reader.Pairs) -> dict[str, Any]:
        out = json_reader.once(pairs)
        return {k: v for k, v in out.items() if not keep or k in keep or isinstance(v, dict)}

    try:
        return json_reader.parse(text, pairs=once)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: not JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            "wanted a complete JSON document"
        ) from None
    except ValueError as error:
        raise UserError(f"{where}: {error}; wanted an annotation") from None


def is_text(value: Any) -> bool:
    """Tell whether this is a string without lone surrogates, writable as UTF-8."""
    return isinstance(value, str) and _HALF.search(value) is None


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value."""
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return names.get(type(value), "a number")
