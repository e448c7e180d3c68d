"""Opens gzip files that cannot inflate without end.

A deflated byte stands for a thousand at most, so that a file of 3 MB may hold 3 GB of nothing.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError

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
