"""Spare tests the waits for a disk: a demo asks for 200, which take as long as what it computes.

What is read back comes out of the system's memory, also after kill -9; no test cuts the power.
"""

from __future__ import annotations

import os
from typing import Protocol


class HasFileno(Protocol):
    """Is what `os.fsync` takes beside a number: an open file."""

    def fileno(self) -> int:
        """Return its number."""


def patch_once() -> None:
    """Have `os.fsync` refuse what is no open file, as it does, and wait for nothing."""
    os.fsync = _check


def _check(handle: int | HasFileno) -> None:
    os.fstat(handle if isinstance(handle, int) else handle.fileno())
