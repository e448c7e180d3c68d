"""Keep computed results on disk, by model and text.

Each process appends to a file of its own, so writers never meet, on a shared file system either.
A record carries its length and checksum: what a killed writer left half done is not there, and is
computed again.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import uuid
import zlib
from pathlib import Path

from rrgclinical.errors import UserError

_HEADER = struct.Struct("<4s32sII")  # mark, SHA-256 of the key, length and CRC-32 of the payload
_MARK = b"rrg1"
_SUFFIX = ".records"


class Store:
    """A mapping from str to bytes for one model; no key changes its value.

    Records that other processes add are seen by stores opened later.
    """

    def __init__(self, directory: str | Path, fingerprint: str) -> None:
        """Opens `directory`/`fingerprint`, made if absent. UserError if it cannot be written."""
        self.path = Path(directory).expanduser() / fingerprint
        self._lock = threading.Lock()
        self._places: dict[bytes, tuple[Path, int, int, int]] = {}
        self._writer: tuple[int, int, Path] | None = None  # process, descriptor, file
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"reward.cache: {self.path} cannot be made ({error.strerror}); name a directory "
                "you can write, or leave reward.cache empty"
            ) from error
        for file in sorted(self.path.glob(f"*{_SUFFIX}")):
            self._scan(file)

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> bytes | None:
        """The payload of `key`; None where there is none, or it is damaged."""
        place = self._places.get(_digest(key))
        if place is None:
            return None
        file, start, length, checksum = place
        try:
            with file.open("rb") as handle:
                handle.seek(start)
                payload = handle.read(length)
        except FileNotFoundError:
            return None  # somebody cleared the cache
        return payload if len(payload) == length and zlib.crc32(payload) == checksum else None

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
            self._places[digest] = (file, start + _HEADER.size, len(payload), checksum)

    def _open(self) -> tuple[int, Path]:
        # A fork shares the descriptor, so a child must open a file of its own.
        if self._writer is None or self._writer[0] != os.getpid():
            file = self.path / f"{uuid.uuid4().hex}{_SUFFIX}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._writer = (os.getpid(), os.open(file, flags, 0o644), file)
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
        size = file.stat().st_size
        with file.open("rb") as handle:
            start = 0
            while start + _HEADER.size <= size:
                handle.seek(start)
                mark, digest, length, checksum = _HEADER.unpack(handle.read(_HEADER.size))
                start += _HEADER.size
                if mark != _MARK or start + length > size:
                    return  # cut off while it was written, or still being written
                self._places[digest] = (file, start, length, checksum)
                start += length


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
