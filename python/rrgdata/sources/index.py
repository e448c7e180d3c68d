"""Reads hundreds of thousands of small text files, each once.

A file whose size, times of change and inode are as they were is not read again (`FileMemory`).
What was read before an interrupt is kept.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import PassingError
from rrgclinical.common.progress import Bar, progress
from rrgdata.file_memory import MISSING, FileMemory, Stamp, stamp_of

# That many files are in memory for each thread.
CHUNK = 500

# path, stamp (MISSING: nothing is to be remembered), value as JSON, whether it was remembered
Row = tuple[Path, Stamp, str, bool]


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
