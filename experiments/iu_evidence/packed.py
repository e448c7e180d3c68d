"""Keep the JSON files of finished jobs as lines of one compressed file."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rrgclinical.common.files import atomic_write
from rrgtrain.errors import UserError


def read_packed(file: Path) -> dict[str, Any]:
    """Map each job's place to its result; empty where there is no `file`."""
    if not file.exists():
        return {}
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return dict(json.loads(line) for line in lines)
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise UserError(f"{file} holds no packed results ({error}); take it from git") from error


def write_packed(file: Path, results: Mapping[str, Any]) -> None:
    """Write results by their place, a line each: equal results are equal bytes."""
    lines = "".join(f"{json.dumps([place, results[place]])}\n" for place in sorted(results))
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, gzip.compress(lines.encode(), mtime=0))


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a directory of results, which `path` is or packs."""
    if path.suffix != ".gz":
        yield path
        return
    if not path.is_file():
        raise UserError(f"{path} does not exist; wanted a directory of results, or packed ones")
    with tempfile.TemporaryDirectory() as home:
        for place, result in read_packed(path).items():
            file = Path(home) / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(result), encoding="utf-8")
        yield Path(home)
