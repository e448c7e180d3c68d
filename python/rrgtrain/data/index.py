"""Remembers what was read in hundreds of thousands of small text files.

The values lie in `$XDG_CACHE_HOME/rrgtrain` (`~/.cache/rrgtrain`), one SQLite file a root. A file
whose size and time of change are as they were is not read again. What was read before an interrupt
is kept.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from rrgtrain.errors import PassingError
from rrgtrain.util.progress import Bar, progress

# SQLite takes up to 999 parameters in a statement; that many files are in memory for each thread.
CHUNK = 500
# Rows that are written at once, since each commit waits for the disk.
COMMIT = 10_000

Stamp = tuple[int, int]
# path, stamp (None where nothing is to be remembered), value as JSON, and whether it was remembered
Row = tuple[Path, Stamp | None, str, bool]


def read_all(
    root: Path,
    paths: Iterable[Path],
    parse: Callable[[Path], Any],
    version: str,
    *,
    total: int,
    threads: int = 4,
) -> Iterator[tuple[Path, Any]]:
    """Yield each path with its parsed value, in the order of `paths`.

    root: directory of the data set, which names the cache.
    parse: reads one file into what JSON can hold, its defects included; called in several threads.
        Of a file that is not there nothing is remembered, nor where it raises PassingError,
        whose line is then the value.
    version: names the rules of `parse`; values of another version are read again.
    total: number of paths, for the progress bar.
    threads: on a network disk each file costs milliseconds of waiting, which threads share; on a
        local one, one thread is a third faster than four.

    A damaged or unwritable cache is warned of, and all is read.
    """
    store = _Store.open(cache_file("texts", root), version)
    bar: Bar[Path] = progress(total, "reading reports")
    with bar, closing(store), ThreadPoolExecutor(threads) as pool:
        under_way: deque[Future[list[Row]]] = deque()
        rest = iter(paths)
        try:
            while chunk := list(itertools.islice(rest, CHUNK)):
                under_way.append(pool.submit(_read, chunk, store.known(chunk), parse))
                if len(under_way) > threads:
                    yield from _finished(under_way.popleft().result(), store, bar)
            while under_way:
                yield from _finished(under_way.popleft().result(), store, bar)
        finally:
            for waiting in under_way:
                waiting.cancel()


def _finished(rows: list[Row], store: _Store, bar: Bar[Path]) -> Iterator[tuple[Path, Any]]:
    store.keep([(str(p), *stamp, text) for p, stamp, text, old in rows if stamp and not old])
    bar.advance(len(rows))
    for path, _, text, _ in rows:
        yield path, json.loads(text)


def _read(
    paths: list[Path], known: dict[str, tuple[Stamp, str]], parse: Callable[[Path], Any]
) -> list[Row]:
    rows = []
    for path in paths:
        try:
            now = os.stat(path)
            stamp = (now.st_size, now.st_mtime_ns)
        except OSError:
            stamp = None  # parse says what is wrong with it
        before, text = known.get(str(path), (None, ""))
        old = stamp is not None and before == stamp
        if not old:
            try:
                text = json.dumps(parse(path))
            except PassingError as error:
                stamp, text = None, json.dumps(str(error))
        rows.append((path, stamp, text, old))
    return rows


def cache_file(kind: str, root: Path) -> Path:
    """Name the file that remembers something of the data set at `root`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return cache / "rrgtrain" / f"{kind}-{name}.sqlite"


class _Store:
    """The SQLite file, or nothing once it has failed."""

    def __init__(self, path: Path, table: sqlite3.Connection | None) -> None:
        self.path, self.table = path, table
        self.waiting: list[tuple[Any, ...]] = []

    @classmethod
    def open(cls, path: Path, version: str) -> _Store:
        """Open the cache; begin anew where it is damaged or of another version."""
        store = cls(path, None)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                store.table = _connected(path, version)
            except sqlite3.OperationalError:
                raise  # in use, or not writable: it may be whole
            except sqlite3.DatabaseError as error:
                warnings.warn(f"{path} is damaged ({error}); all is read again", stacklevel=3)
                _remove(path)
                store.table = _connected(path, version)
        except (OSError, sqlite3.Error) as error:
            store._fail(error)
        return store

    def known(self, paths: list[Path]) -> dict[str, tuple[Stamp, str]]:
        """Find what is remembered of these files."""
        if self.table is None:
            return {}
        marks = ",".join("?" * len(paths))
        query = f"SELECT path, size, time, value FROM texts WHERE path IN ({marks})"
        try:
            rows = self.table.execute(query, [str(path) for path in paths])
            return {path: ((size, time), value) for path, size, time, value in rows}
        except sqlite3.Error as error:
            self._fail(error)
            return {}

    def keep(self, rows: list[tuple[Any, ...]]) -> None:
        """Remember rows of path, size, time and value."""
        self.waiting += rows
        if len(self.waiting) >= COMMIT:
            self._write()

    def close(self) -> None:
        """Write what is not yet written."""
        self._write()
        if self.table is not None:
            self.table.close()

    def _write(self) -> None:
        # In one transaction: between two another run may write.
        rows, self.waiting = self.waiting, []
        if self.table is None or not rows:
            return
        try:
            with self.table:
                self.table.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        table, self.table = self.table, None
        if table is not None:
            table.close()
        if type(error) is sqlite3.DatabaseError:
            _remove(self.path)  # damaged deep inside: the next run begins anew
        warnings.warn(
            f"{self.path} cannot be used ({error}); the files are read each time", stacklevel=4
        )


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    # SQLite would play a journal left behind into the next file of that name
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)


def _connected(path: Path, version: str) -> sqlite3.Connection:
    table = sqlite3.connect(path, timeout=30)
    try:
        table.execute("CREATE TABLE IF NOT EXISTS about (version TEXT)")
        if table.execute("SELECT version FROM about").fetchall() != [(version,)]:
            table.execute("DROP TABLE IF EXISTS texts")
            table.execute("DELETE FROM about")
            table.execute("INSERT INTO about VALUES (?)", [version])
        table.execute(
            "CREATE TABLE IF NOT EXISTS texts "
            "(path TEXT PRIMARY KEY, size INT, time INT, value TEXT) WITHOUT ROWID"
        )
        table.commit()
    except BaseException:
        table.close()
        raise
    return table
