"""A child that dies of a signal: its name and where it stood are in the test's message."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.rrgtrain.runs import ends, on_ranks


def main(words: list[str]) -> int:
    signal.raise_signal(signal.SIGSEGV)
    return 0


def test_a_fault_is_named_with_its_stack(tmp_path: Path) -> None:
    done = on_ranks(cwd=tmp_path, main="tests.rrgtrain.test_runs", count=1)
    assert done[0].status == -signal.SIGSEGV
    assert ends(done).startswith("rank 0 died of SIGSEGV:\n")
    assert "Fatal Python error: Segmentation fault" in done[0].err
    assert "in main" in done[0].err
