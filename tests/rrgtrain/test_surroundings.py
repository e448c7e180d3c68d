"""Tests do not mind what started them: nohup, a background, no input, a home, a narrow screen."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.rrgtrain.runs import start_process

HERE = Path(__file__).resolve().parent
# Signals, lines for a screen, times, files of a run, children, words with a home.
SENSITIVE = [
    *(
        "../rrgclinical/common/test_stop.py",
        "../rrgclinical/common/test_progress.py",
        "test_clocks.py",
        "log/test_logs.py",
    ),
    *("state/test_rundir.py", "state/test_grace.py", "test_words.py", "commands/test_listing.py"),
]


def main_of_pytest(home: Path) -> None:
    """Run the sensitive tests; a process forked from the server has imported what they need."""
    report = os.open(home / "report.txt", os.O_WRONLY | os.O_CREAT, 0o666)
    for number in (1, 2):
        os.dup2(report, number)
    os.close(0)
    os.umask(0o077)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "XDG_", "LC_"))]:
        del os.environ[name]
    # a home that cannot be made: it would lie in a file
    hostile = {"HOME": f"{__file__}/home", "COLUMNS": "40", "TZ": "Pacific/Auckland", "LC_ALL": "C"}
    os.environ.update(hostile, TRITON_INTERPRET="0")
    time.tzset()
    os.chdir(home)
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
    words += ["-c", str(HERE.parents[1] / "pyproject.toml"), f"--basetemp={home / 'blank and é'}"]
    raise SystemExit(pytest.main([*words, *(str(HERE / name) for name in SENSITIVE)]))


def test_sensitive_tests_pass_in_hostile_surroundings(tmp_path: Path) -> None:
    process = start_process(main_of_pytest, tmp_path)
    process.join()
    assert process.exitcode == 0, (tmp_path / "report.txt").read_text()[-6000:]
