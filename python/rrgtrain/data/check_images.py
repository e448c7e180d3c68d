"""Every image of a run is decoded once before anything is trained.

A file that breaks off deep in the training set is then told at once, with the number of others,
and not after hours. Files found good are remembered by size and time of change, so the next run
on the same data does not look again.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rrgtrain.data.images import read_image
from rrgtrain.data.study import Study
from rrgtrain.errors import UserError
from rrgtrain.util.files import atomic_write
from rrgtrain.util.progress import Bar, progress

# Decoding lets go of the interpreter's lock, so threads share the work. A chunk is what an
# interrupt has to wait for.
CHUNK = 64

Stamp = list[int]


def check_images(studies: Sequence[Study], root: Path | None = None) -> None:
    """Decodes the images of `studies`; UserError tells the first that fails and how many more.

    root: directory of the data set, under whose name good files are remembered in
        `$XDG_CACHE_HOME/rrgtrain` (`~/.cache/rrgtrain`). None: nothing is remembered.
    """
    store = None if root is None else _store(root)
    known = {} if store is None else _read(store)
    paths = dict.fromkeys(image.path for study in studies for image in study.images)
    stamps = {path: _stamp(path) for path in paths}
    unseen = [p for p, stamp in stamps.items() if stamp is None or known.get(str(p)) != stamp]
    if not unseen:
        return
    problems: list[str] = []
    bar: Bar[int] = progress(len(unseen), "checking images")
    with bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        for begin in range(0, len(unseen), CHUNK):
            chunk = unseen[begin : begin + CHUNK]
            for path, problem in zip(chunk, pool.map(_problem, chunk), strict=True):
                if problem is None:
                    known[str(path)] = stamps[path]
                else:
                    problems.append(problem)
            bar.advance(len(chunk))
        if store is not None:
            _write(store, known)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise UserError(problems[0] + more)


def _problem(path: Path) -> str | None:
    try:
        read_image(path)
    except UserError as error:
        return str(error)
    return None


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None  # read_image tells what is wrong with it
    return [found.st_size, found.st_mtime_ns]


def _store(root: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return cache / "rrgtrain" / f"images-{name}.json"


def _read(store: Path) -> dict[str, Stamp | None]:
    try:
        kept = json.loads(store.read_bytes())
    except (OSError, ValueError):
        return {}  # nothing remembered: all images are looked at
    return kept if isinstance(kept, dict) else {}


def _write(store: Path, known: dict[str, Stamp | None]) -> None:
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(store, json.dumps(known))
    except OSError as error:
        warnings.warn(
            f"{store} cannot be written ({error.strerror}); the next run checks the images again",
            stacklevel=3,
        )
