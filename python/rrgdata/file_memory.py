"""Remember what very many files hold, and read each once.

A file whose size, times of change and inode are as they were is not read again. What was read
before an interrupt is kept.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from rrgclinical.common.errors import PassingError
from rrgclinical.common.progress import Bar, progress

T = TypeVar("T")

Stamp = tuple[int, int]
"""Size of a file, and one number of its times of change and its inode."""
MISSING: Stamp = (-1, -1)
# That many files are in memory for each thread.
CHUNK = 500
# path, stamp (MISSING: nothing is to be remembered), value as JSON, whether it was remembered
Row = tuple[Path, Stamp, str, bool]

# SQLite takes up to 999 parameters in a statement.
_AT_ONCE = 900
_TABLE = (
    "CREATE TABLE IF NOT EXISTS files "
    "(path TEXT PRIMARY KEY, size INT, time INT, rules TEXT, value TEXT) WITHOUT ROWID"
)


class FileMemory:
    """Keep a text for each file while its stamp stays.

    They lie in `$XDG_CACHE_HOME/rrgtrain` (`~/.cache/rrgtrain`), a SQLite file for each kind and
    root. A damaged one is warned of and begun anew; of one that cannot be used one warning ends in
    `without`, and nothing is remembered.

    Args:
        kind: of the texts; part of the file's name.
        root: directory of the data set, or its table, which stands for the directory.
        version: names the rules by which texts are made; those by other rules are forgotten.
        without: says what is done without a memory.
    """

    def __init__(self, kind: str, root: Path, version: str, without: str) -> None:
        self.root = Path(os.path.abspath(root.parent if root.is_file() else root))
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        name = hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:16]
        self.path = cache / "rrgtrain" / f"{kind}-{name}.sqlite"
        self._rules = hashlib.sha256(version.encode()).hexdigest()[:8]
        self._without, self._works = without, True

    def known(self, paths: Iterable[Path]) -> dict[Path, tuple[Stamp, str]]:
        """Return what is remembered of `paths`: stamps of that time, and texts."""
        by_key = {self._key(path): path for path in paths}

        def read(table: sqlite3.Connection) -> dict[Path, tuple[Stamp, str]]:
            results, keys = {}, iter(by_key)
            while some := list(itertools.islice(keys, _AT_ONCE)):
                marks = ",".join("?" * len(some))
                for key, size, time, text in self._rows(table, f"path IN ({marks})", some):
                    results[by_key[key]] = ((size, time), text)
            return results

        return self._use(read, {}) if self.path.is_file() else {}

    def matching(self, pattern: str) -> list[tuple[Path, Stamp, str]]:
        """Return the files, by absolute paths, whose text is LIKE `pattern`."""

        def read(table: sqlite3.Connection) -> list[tuple[Path, Stamp, str]]:
            rows = self._rows(table, "value LIKE ?", [pattern])
            return [(self.root / key, (size, time), text) for key, size, time, text in rows]

        return self._use(read, []) if self.path.is_file() else []

    def keep(self, results: Iterable[tuple[Path, Stamp, str]]) -> None:
        """Remember texts of files, with the stamps that these had before they were read."""
        rows = [(self._key(path), *stamp, self._rules, text) for path, stamp, text in results]

        def write(table: sqlite3.Connection) -> None:
            table.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)

        if rows:
            self._use(write, None)

    def _rows(self, table: sqlite3.Connection, where: str, values: Sequence[str]) -> Any:
        query = f"SELECT path, size, time, value FROM files WHERE rules = ? AND {where}"
        return table.execute(query, [self._rules, *values])

    def _use(self, use: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        if not self._works:
            return nothing
        try:
            # texts of reports are kept: for their owner alone, whatever the umask
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(self.path, 0o600)
            try:
                return self._opened(use)
            except sqlite3.OperationalError:
                raise  # in use, or not writable: it may be whole
            except sqlite3.DatabaseError as error:
                warnings.warn(f"{self.path} is damaged ({error}) and begun anew", stacklevel=4)
                self.path.unlink(missing_ok=True)
                # SQLite would play a journal left behind into the next file of that name
                self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
                return self._opened(use)
        except (OSError, sqlite3.Error) as error:
            self._works = False
            reason = getattr(error, "strerror", None) or error
            warnings.warn(f"{self.path} cannot be used ({reason}); {self._without}", stacklevel=4)
            return nothing

    def _opened(self, use: Callable[[sqlite3.Connection], T]) -> T:
        with closing(sqlite3.connect(self.path, timeout=30)) as table, table:
            # what is lost with the power is read again
            table.execute("PRAGMA synchronous = OFF")
            table.execute(_TABLE)
            return use(table)

    def _key(self, path: Path) -> str:
        whole, above = str(path), f"{self.root}{os.sep}"
        whole = whole if whole.startswith(above) else os.path.abspath(whole)
        return whole.removeprefix(above)


def stamp_of(path: Path) -> Stamp:
    """Return what changes with a file; MISSING where there is none.

    The time of its content can be set, as rsync and tar do; that of its inode cannot.
    """
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return MISSING
    return state.st_size, hash((state.st_mtime_ns, state.st_ctime_ns, state.st_ino))


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
    memory = FileMemory("reports", root, version, "the files are read each time")
    bar: Bar[Path] = progress(total, "reading reports")
    with bar, ThreadPoolExecutor(threads) as pool:
        under_way: deque[Future[list[Row]]] = deque()
        rest = iter(paths)
        try:
            while chunk := list(itertools.islice(rest, CHUNK)):
                under_way.append(pool.submit(_read, chunk, memory.known(chunk), parse))
                if len(under_way) > threads:
                    yield from _finished(under_way.popleft().result(), memory, bar)
            while under_way:
                yield from _finished(under_way.popleft().result(), memory, bar)
        finally:
            for waiting in under_way:
                waiting.cancel()


def _finished(rows: list[Row], memory: FileMemory, bar: Bar[Path]) -> Iterator[tuple[Path, Any]]:
    memory.keep((p, stamp, text) for p, stamp, text, old in rows if stamp != MISSING and not old)
    bar.advance(len(rows))
    for path, _, text, _ in rows:
        yield path, json.loads(text)


def _read(
    paths: list[Path], remembered: dict[Path, tuple[Stamp, str]], parse: Callable[[Path], Any]
) -> list[Row]:
    rows = []
    for path in paths:
        stamp = stamp_of(path)  # where it is missing, parse says so
        before, text = remembered.get(path, (None, ""))
        old = before == stamp != MISSING
        if not old:
            try:
                text = json.dumps(parse(path))
            except PassingError as error:
                stamp, text = MISSING, json.dumps(str(error))
        rows.append((path, stamp, text, old))
    return rows
