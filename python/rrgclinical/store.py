"""Keep computed results on disk, by model and text.

Each process appends to a file of its own, so writers never meet, on a shared file system either.
A record carries its length and checksum: what a killed writer left half done is not there, and is
computed again. Processes of one node that miss the same text at once do not compute it twice: each
works on texts that it holds (`once`), by a lock that the system lets go when the process ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import struct
import tempfile
import threading
import time
import uuid
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rrgclinical.common.errors import UserError

_HEADER = struct.Struct("<4s32sII")  # mark, SHA-256 of the key, length and CRC-32 of the payload
_MARK = b"rrg1"
_SUFFIX = ".records"
# Keys held at a time: other processes take the next ones meanwhile, and the list that the kernel
# searches at every lock stays short.
_PART = 256
_PAUSE = 0.01
# Closing any descriptor of a file drops all that the process has locked there, so none is closed.
_LOCKS: dict[Path, int] = {}


class Store:
    """A mapping from str to bytes for one model; a key's newest record counts.

    Records that other processes add are seen after `refresh`.
    """

    def __init__(self, directory: str | Path, fingerprint: str) -> None:
        """Opens `directory`/`fingerprint`, made if absent. UserError if it cannot be written."""
        self.path = Path(directory).expanduser() / fingerprint
        self._lock = threading.Lock()
        self._places: dict[bytes, list[tuple[Path, int, int, int]]] = {}
        self._scanned: dict[Path, int] = {}
        self._writer: tuple[int, int, Path] | None = None  # process, descriptor, file
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"reward.cache: {self.path} cannot be made ({error.strerror}); name a directory "
                "you can write, or leave reward.cache empty"
            ) from error
        self.refresh()

    def refresh(self) -> None:
        """Look at what other processes have added since the last look."""
        with suppress(FileNotFoundError):  # somebody clears the cache
            files = self.path.glob(f"*{_SUFFIX}")
            for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
                if self._writer is None or file != self._writer[2]:
                    self._scan(file)

    def once(self, keys: Sequence[str], work: Callable[[list[str]], None]) -> None:
        """Call `work` on parts of `keys` that no other process works on.

        Processes of this node are meant. A key that another one holds comes when it is let go; what
        was put for it can then be got. `keys` are distinct.
        """
        left = list(keys)
        while left:
            held_elsewhere: list[str] = []
            for begin in range(0, len(left), _PART):
                part = left[begin : begin + _PART]
                try:
                    own = [key for key in part if self._hold(key)]
                    if own:
                        self.refresh()
                        work(own)
                finally:
                    # all: a signal may have come between two locks
                    for key in part:
                        fcntl.lockf(_lock_file(self.path), fcntl.LOCK_UN, 1, _place(key))
                mine = set(own)
                held_elsewhere += [key for key in part if key not in mine]
            if len(held_elsewhere) == len(left):
                time.sleep(_PAUSE)
            left = held_elsewhere

    def _hold(self, key: str) -> bool:
        """Lock the byte that stands for `key`; False where another process has it."""
        try:
            fcntl.lockf(_lock_file(self.path), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> bytes | None:
        """The newest whole payload of `key`, None without; warns of a damaged one."""
        for file, start, length, checksum in reversed(self._places.get(_digest(key), [])):
            with suppress(FileNotFoundError):  # somebody cleared the cache
                with file.open("rb") as handle:
                    handle.seek(start)
                    payload = handle.read(length)
                if len(payload) == length and zlib.crc32(payload) == checksum:
                    return payload
                line = (
                    f"reward.cache: the record at byte {start} of {file} is damaged, and not used"
                )
                warnings.warn(line, stacklevel=2)
        return None

    def put(self, key: str, payload: bytes) -> None:
        """Appends one record in a single write."""
        digest = _digest(key)
        checksum = zlib.crc32(payload)
        record = _HEADER.pack(_MARK, digest, len(payload), checksum) + payload
        with self._lock:
            descriptor, file = self._open()
            start = os.lseek(descriptor, 0, os.SEEK_END)
            written = os.write(descriptor, record)
            if written != len(record):
                # A full disk: the next record must not follow half of this one.
                os.ftruncate(descriptor, start)
                raise UserError(
                    f"reward.cache: {file} took {written} of {len(record)} bytes; is the disk full?"
                )
            place = (file, start + _HEADER.size, len(payload), checksum)
            self._places.setdefault(digest, []).append(place)

    def _open(self) -> tuple[int, Path]:
        # A fork shares the descriptor, so a child must open a file of its own.
        if self._writer is None or self._writer[0] != os.getpid():
            file = self.path / f"{uuid.uuid4().hex}{_SUFFIX}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._writer = (os.getpid(), os.open(file, flags, 0o600), file)
        return self._writer[1], self._writer[2]

    def close(self) -> None:
        """Closes the file written to; the store can still be read."""
        with self._lock:
            if self._writer is not None and self._writer[0] == os.getpid():
                os.close(self._writer[1])
            self._writer = None

    def __del__(self) -> None:
        self.close()

    def _scan(self, file: Path) -> None:
        size, start = file.stat().st_size, self._scanned.get(file, 0)
        if start >= size:
            return
        with file.open("rb") as handle:
            while start + _HEADER.size <= size:
                handle.seek(start)
                mark, digest, length, checksum = _HEADER.unpack(handle.read(_HEADER.size))
                start += _HEADER.size
                if mark != _MARK or start + length > size:
                    return  # cut off while it was written, or still being written
                self._places.setdefault(digest, []).append((file, start, length, checksum))
                start += length
                self._scanned[file] = start


def _lock_file(path: Path) -> int:
    """A descriptor of the file, local to the node, in which the keys of a store are held."""
    path = path.resolve()
    if path not in _LOCKS:
        folder = Path(tempfile.gettempdir()) / f"rrgclinical-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        there = folder.lstat()
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.getuid():
            raise UserError(f"{folder} is not a folder of yours; remove it, or set TMPDIR")
        file = folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.lock"
        _LOCKS[path] = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return _LOCKS[path]


def _place(key: str) -> int:
    """Return the lock byte of a key; keys that share one wait for each other."""
    return int.from_bytes(_digest(key)[:8], "little") >> 2


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
