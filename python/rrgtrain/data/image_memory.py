"""Remembers whether image files decode, so that none is checked twice."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from rrgtrain.data.images import ImageFacts
from rrgtrain.data.index import cache_file

T = TypeVar("T")

# To be raised whenever `read_image` refuses more, or less, than before.
VERSION = 3

Verdict = ImageFacts | str
"""Facts of a file that decodes, or the line that says why it does not."""
Stamp = tuple[int, int]

_TABLE = """create table if not exists images (path text primary key, size integer,
    changed integer, problem text, kind text, width integer, height integer, absent text)"""
_COLUMNS = "size, changed, problem, kind, width, height, absent"


class ImageMemory:
    """Remember verdicts on the image files of a data set.

    A verdict is valid while size and time of change of the file stay. They lie in
    `$XDG_CACHE_HOME/rrgtrain` (`~/.cache/rrgtrain`), a file for each root; the root of a table is
    its directory. A file there that cannot be read is begun anew; one that cannot be written is
    warned of once.
    """

    def __init__(self, root: Path) -> None:
        root = root.parent if root.is_file() else root
        self.root = Path(os.path.abspath(root))
        self.file = cache_file(f"images-{VERSION}", root)
        self._writes = True

    def recall(self, paths: Iterable[Path]) -> dict[Path, Verdict]:
        """Return the verdicts on those of `paths` that have one and are unchanged."""

        def read(store: sqlite3.Connection) -> dict[Path, Verdict]:
            query = f"select {_COLUMNS} from images where path = ?"
            rows = ((p, store.execute(query, (self._key(p),)).fetchone()) for p in paths)
            return {p: _verdict(row) for p, row in rows if row and row[:2] == stamp_of(p)}

        return self._read(read, {})

    def broken(self) -> dict[str, str]:
        """Return the unchanged files that do not decode: why, by absolute path."""

        def read(store: sqlite3.Connection) -> dict[str, str]:
            query = "select path, size, changed, problem from images where problem is not null"
            rows = ((self.root / row[0], row[1:3], row[3]) for row in store.execute(query))
            return {str(path): why for path, stamp, why in rows if stamp == stamp_of(path)}

        return self._read(read, {})

    def keep(self, verdicts: Mapping[Path, tuple[Stamp, Verdict]]) -> None:
        """Remember verdicts on files, with the stamps they had before they were read."""
        if not self._writes or not verdicts:
            return
        rows = [(self._key(p), *s, *_columns(verdict)) for p, (s, verdict) in verdicts.items()]
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._write(rows)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self.file.unlink()  # no database; it held nothing that cannot be found again
                self._write(rows)
        except (OSError, sqlite3.Error) as error:
            self._writes = False
            reason = getattr(error, "strerror", None) or error
            warnings.warn(
                f"{self.file} cannot be written ({reason}); the next run checks the images again",
                stacklevel=3,
            )

    def _write(self, rows: list[tuple[object, ...]]) -> None:
        with closing(sqlite3.connect(self.file)) as store, store:
            # what is lost with the power is looked at again
            store.execute("pragma synchronous = off")
            store.execute(_TABLE)
            store.executemany("insert or replace into images values (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _read(self, read: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        if not self.file.is_file():
            return nothing
        try:
            with closing(sqlite3.connect(self.file)) as store:
                return read(store)
        except sqlite3.Error:
            return nothing  # all images are looked at

    def _key(self, path: Path) -> str:
        whole = Path(os.path.abspath(path))
        return str(whole.relative_to(self.root) if whole.is_relative_to(self.root) else whole)


def stamp_of(path: Path) -> Stamp:
    """Return size and time of change of a file; -1 and -1 if missing."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return -1, -1
    return state.st_size, state.st_mtime_ns


def _columns(verdict: Verdict) -> tuple[object, ...]:
    if isinstance(verdict, str):
        return verdict, None, None, None, None
    return None, verdict.kind, verdict.width, verdict.height, " ".join(verdict.absent)


def _verdict(row: tuple[int, int, str | None, str, int, int, str]) -> Verdict:
    _, _, problem, kind, width, height, absent = row
    return problem or ImageFacts(kind, width, height, tuple(absent.split()))
