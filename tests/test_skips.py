"""A skip whose reason is not listed ends a run of CI in red; the listed ones do not."""

from __future__ import annotations

import os
import posix
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.rrgtrain.runs import start_process
from tests.skips import LISTED, NO_CASE, unlisted

ROOT = Path(__file__).parents[1]
ONE = """
import pytest
from tests.skips import no_case, pytest_sessionfinish, pytest_terminal_summary

def test_passes(): pass
def test_none(): no_case("in slabs")
"""
OTHER = ONE + "def test_off(): pytest.skip('no java on this machine')\n"


@pytest.mark.parametrize(("tests", "status"), [(ONE, 0), (OTHER, 1)], ids=["listed", "not listed"])
def test_a_run_of_ci_knows_its_skips(tests, status, tmp_path):
    (tmp_path / "conftest.py").write_text(tests.split("def test_passes")[0])
    (tmp_path / "test_it.py").write_text(tests)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path, tmp_path],
        env=os.environ | {"PYTHONPATH": str(ROOT), "RRGKERN_SKIPS": "listed"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == status, ran.stdout
    assert f"1  {NO_CASE}in slabs\n" in ran.stdout
    assert ("no java on this machine  NOT LISTED" in ran.stdout) == bool(status)


def test_what_can_be_installed_is_not_listed():
    found = Counter(["METEOR 1.5 is a Java program", "needs a C++ compiler", *LISTED])
    assert unlisted(found)[:2] == ["METEOR 1.5 is a Java program", "needs a C++ compiler"]


# Tests and the runs they start wait for no disk.
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
