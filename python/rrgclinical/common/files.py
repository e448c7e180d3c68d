"""Write files and directories that are never half written; read gzip that has an end.

A deflated byte stands for a thousand at most, so that a file of 3 MB may hold 3 GB of nothing.
"""

from __future__ import annotations

import fcntl
import glob
import gzip
import hashlib
import io
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import OTHER_PLACE, READ_ONLY, UserError

WEIGHTS = (".safetensors", ".bin")
# Another training moves weights everywhere: it shows in blocks along a file.
_BLOCKS, _BLOCK = 64, 1 << 16


def require_file_place(path: str | Path) -> None:
    """Refuse a place that no file may take, before the work that ends in it.

    A rename puts a plain file where a device, a pipe or a link into /proc stands: /dev/null and
    /dev/stdout would be gone for every program of the machine. No directory above it is made.

    Raises UserError for a directory, a device, a pipe, a link that leads back to itself, a path
    below a file, and a directory that this user may not write in.
    """
    path = Path(path)
    try:
        path.lstat()
    except OSError as error:  # of a file that is yet to be made, what stands above is told below
        if isinstance(error, PermissionError):
            line = f"{path} cannot be written: a directory above it is closed to this user"
            raise UserError(f"{line}; {OTHER_PLACE}") from error
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file in it")
    to_process = path.is_symlink() and os.readlink(path).startswith("/proc/")
    if to_process or (path.exists() and not path.is_file()):
        raise UserError(f"{path} is a device, a pipe or a stream; name a file to be written")
    if os.path.islink(os.path.realpath(path)):  # which follows no link twice
        raise UserError(f"{path} is a link that leads back to itself; name another file")
    above = require_directory_place(path.parent)
    if os.statvfs(above).f_flag & os.ST_RDONLY:
        raise UserError(f"{path} cannot be written: {READ_ONLY}")
    effective = os.access in os.supports_effective_ids
    if not os.access(above, os.W_OK | os.X_OK, effective_ids=effective):
        raise UserError(f"{path} cannot be written: {above} is closed to this user; {OTHER_PLACE}")


def require_directory_place(path: Path) -> Path:
    """Return the innermost part of `path` that exists; UserError where that is no directory."""
    path = path.absolute()
    part = next(part for part in (path, *path.parents) if os.path.lexists(part))
    if not part.is_dir():
        kind = "a file" if part.exists() else "a link that leads nowhere"
        raise UserError(f"{part} is {kind}, and no directory; name another place than {path}")
    return part


def make_parents(path: Path) -> list[Path]:
    """Make the directories above `path`; return those that were lacking, the innermost first."""
    lacking = [folder for folder in path.absolute().parents if not os.path.lexists(folder)]
    path.parent.mkdir(parents=True, exist_ok=True)
    return lacking


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the directories that hold nothing, in this order."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def require_end(path: Path) -> None:
    """Raise UserError for a pipe or a device, which may have no end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path} is a pipe or a device, which may have no end; copy it to a file")


def read_whole(path: str | Path) -> bytes:
    """Read a file to its end.

    Raises UserError as `require_end` does, and OSError as `open` does.
    """
    path = Path(path)
    require_end(path)
    return path.read_bytes()


def read_whole_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Read a text to its end, its line ends as line feeds.

    Raises as `read_whole`, and UnicodeDecodeError.
    """
    with io.TextIOWrapper(io.BytesIO(read_whole(path)), encoding=encoding) as text:
        return text.read()


def atomic_write(path: str | Path, data: bytes | str, *, private: bool = False) -> None:
    """Write `data` whole or not at all; `private`: for its owner alone to read.

    Also after a crash `path` holds its old content or all of the new: temporary file beside it,
    fsync, rename, fsync of the directory.

    Raises UserError as `require_file_place`, and OSError, which names `path`.
    """
    path = Path(path)
    require_file_place(path)
    content = data.encode("utf-8") if isinstance(data, str) else data
    # a name may have 255 bytes, and a character 4 of them
    partial = path.with_name(f".{path.name[:50]}.{uuid.uuid4().hex}.tmp")
    try:
        with partial.open("xb") as file:
            with suppress(OSError):  # there may be no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if private:
                os.fchmod(file.fileno(), 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            partial.replace(path)  # while it is locked: see remove_left
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
    sync_directory(path.parent)


def remove_own(path: Path, begin: bytes) -> None:
    """Remove a file that an earlier call has left, if there is one.

    begin: of what such a file holds. Raises UserError where something else has the name: a link, a
    directory, a file that does not begin so.
    """
    if not os.path.lexists(path):
        return
    own = not path.is_symlink() and path.is_file()
    if own:
        with path.open("rb") as file:
            own = begin.startswith(file.read(len(begin)))
    if not own:
        raise UserError(f"{path} is there, and not of an earlier call; name another --out")
    path.unlink()


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """A directory to fill, which becomes `path` when the block ends without an error.

    Everything in it is on the disk before the rename. What stood at `path` before is replaced;
    a crash between leaves nothing there, never a mixture. On an error nothing of it stays.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        yield partial
        sync_tree(partial)
        if path.exists():
            remove_directory(path)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_directory(path.parent)


def remove_directory(path: Path) -> None:
    """Removes a directory so that a crash never leaves half of it under its name."""
    gone = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    path.rename(gone)
    _remove(gone)


# of an atomic write or a removal; of a node that shows itself to the others
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{32}\.tmp|\.node-.+\.tmp", re.DOTALL)


def remove_partial(directory: Path) -> None:
    """Removes what atomic writes and removals left in `directory` when they were cut short.

    Only for the process that holds the run's lock: the files of a living writer look the same.
    """
    for left in directory.glob(".*.tmp"):
        if _PARTIAL.fullmatch(left.name):
            _remove(left)


@contextmanager
def held(directory: Path) -> Iterator[bool]:
    """Lock a directory or file while its writer lives; False where that cannot be had.

    It is held by another, or there are no locks.
    """
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except OSError:
        free = False
    try:
        yield free
    finally:
        os.close(handle)


def remove_left(path: Path) -> None:
    """Removes what atomic writes to `path` have left of writers that were killed.

    One that is `held` is being written, and stays.
    """
    for part in path.parent.glob(f".{glob.escape(path.name[:50])}*.tmp"):
        ours = re.fullmatch(r"(.+)\.[0-9a-f]{32}\.tmp", part.name.removeprefix("."))
        plain = (part.is_dir() or part.is_file()) and not part.is_symlink()
        name = path.name if part.is_dir() else path.name[:50]
        if ours and ours[1] == name and plain:
            with suppress(OSError), held(part) as free:
                if free:
                    _remove(part)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()  # of a link no more than the link


def sync_tree(root: Path) -> None:
    """Every file and directory below `root`, and itself, on the disk."""
    for folder, _, files in os.walk(root):
        for name in files:
            handle = os.open(Path(folder, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_directory(Path(folder))


def sync_directory(path: Path) -> None:
    """Makes renames and new names in a directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_digest(file: Path) -> str:
    """Digest a file; of weights the size and 64 blocks along it."""
    with file.open("rb") as stream:
        if file.suffix not in WEIGHTS:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:16]
        size = file.stat().st_size
        digest = hashlib.sha256(f"{size}\n".encode())
        for place in range(_BLOCKS):
            stream.seek(size * place // _BLOCKS)
            digest.update(stream.read(_BLOCK))
    return digest.hexdigest()[:16]


AT_LEAST = 1 << 26
"""Bytes that any file may inflate to."""
TIMES = 20
"""Size, in sizes of the file, that it may inflate to beyond these; tables and numbers reach 10."""


class _Inflated(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._path, self._file = path, gzip.GzipFile(path, "rb")
        self._limit = AT_LEAST + TIMES * path.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._file.readinto(buffer)
        if self._file.tell() > self._limit:
            raise UserError(
                f"{self._path}: inflates to more than {self._limit} bytes, {TIMES} times its size "
                "and 64 MiB, as no table or record does; unpack it yourself, or download it again"
            )
        return count

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_gzip(path: Path) -> io.BufferedReader:
    """Open a gzip file to read bytes; its reading raises UserError beyond the bound.

    Otherwise what `gzip.open` raises for a file that is none.
    """
    return io.BufferedReader(_Inflated(path), 1 << 16)
