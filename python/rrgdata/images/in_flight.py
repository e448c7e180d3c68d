"""Bounds pixels: of one image, and of all that are decoded at a time.

Neither is a setting. A detector of 43 x 43 cm at 0.1 mm has 18 MP, so a radiograph of more than 64
is a scan or a mistake, and a bound of one's own would have to reach every process that reads one.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rrgclinical.common.errors import UserError

LARGEST = 64_000_000
"""Pixels of an image."""
AT_A_TIME = max(LARGEST, 8_000_000 * (os.cpu_count() or 1))
"""Pixels that are decoded at a time: the largest image, or a usual one for each core."""


def check_area(width: int, height: int) -> None:
    """Raise UserError, without the file's name, for more pixels than LARGEST."""
    if width * height > LARGEST:
        raise UserError(
            f"too large ({width} x {height} pixels are {width * height / 1e6:.1f} MP; wanted at "
            f"most {LARGEST // 1_000_000} MP); scale it down first"
        )


class InFlight:
    """Let images be decoded while their pixels together are no more than `limit`.

    One that is larger waits until it is alone. `locks` is `threading`, or `multiprocessing` for
    several processes, which then inherit this.
    """

    def __init__(self, locks: Any = threading, limit: int = AT_A_TIME) -> None:
        self._limit = limit
        self._pixels = ctypes.c_longlong(0) if locks is threading else locks.RawValue("q", 0)
        self._changed = locks.Condition()

    @contextmanager
    def hold(self, pixels: int) -> Iterator[None]:
        """Wait for room for these pixels; take it until the block ends."""
        with self._changed:
            while self._pixels.value and self._pixels.value + pixels > self._limit:
                self._changed.wait()
            self._pixels.value += pixels
        try:
            yield
        finally:
            with self._changed:
                self._pixels.value -= pixels
                self._changed.notify_all()
