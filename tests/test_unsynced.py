"""Tests and the runs they start wait for no disk."""

from __future__ import annotations

import os
import posix
from pathlib import Path

import pytest

from tests.rrgtrain.runs import start_process


def _sync(place: Path) -> None:
    assert os.fsync is not posix.fsync
    with (place / "synced").open("w") as file:
        os.fsync(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fsync(-1)


def test_here_and_in_a_run_nothing_waits_for_the_disk(tmp_path: Path) -> None:
    _sync(tmp_path)
    process = start_process(_sync, tmp_path)
    process.join()
    assert process.exitcode == 0
