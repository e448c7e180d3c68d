"""Small text files by the hundred thousand: read once, and remembered."""

from __future__ import annotations

import os
import sqlite3
import warnings
from pathlib import Path

import pytest

from rrgclinical.common.errors import PassingError
from rrgdata.file_memory import read_all


class Reader:
    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, path: Path) -> list[str]:
        self.read.append(path.name)
        return ["not there"] if not path.is_file() else [path.read_text()]


def tree(tmp_path: Path, count: int = 3) -> list[Path]:
    root = tmp_path / "reports"
    root.mkdir()
    paths = [root / f"{number}.txt" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text(f"Report {number}, größer.")
    return paths


def every(paths: list[Path], reader: Reader, version: str = "1") -> list[str]:
    rows = list(read_all(paths[0].parent, iter(paths), reader, version, total=len(paths)))
    assert [path for path, _ in rows] == paths
    return [value for _, (value,) in rows]


def test_only_a_changed_file_is_read_again(tmp_path) -> None:
    paths = tree(tmp_path, 1_203)  # more than two chunks
    first = every(paths, Reader())
    again = Reader()
    assert every(paths, again) == first and again.read == []
    paths[1].write_text("Another text.")
    changed = Reader()
    assert every(paths, changed)[:3] == [first[0], "Another text.", first[2]]
    assert changed.read == ["1.txt"]
    os.utime(paths[2], ns=(0, 7))
    touched = Reader()
    assert every(paths, touched)[2] == first[2] and touched.read == ["2.txt"]
    # a corrected file of the same size and time: as rsync -t and tar place it, and written anew
    for place in (paths[3].with_suffix(".new"), paths[3]):
        before, text = paths[3].stat(), paths[3].read_text()[::-1]
        place.write_text(text)
        os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(place, paths[3])
        after = paths[3].stat()
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        assert every(paths, Reader())[3] == text


def test_other_rules_read_all_again(tmp_path) -> None:
    paths = tree(tmp_path)
    every(paths, Reader())
    other = Reader()
    every(paths, other, version="2")
    assert len(other.read) == 3


def test_of_a_file_that_is_not_there_nothing_is_remembered(tmp_path) -> None:
    paths = tree(tmp_path)
    paths[1].unlink()
    assert every(paths, Reader())[1] == "not there"
    paths[1].write_text("Here now.")
    assert every(paths, Reader())[1] == "Here now."


def test_of_a_passing_error_nothing_is_remembered(tmp_path) -> None:
    paths = tree(tmp_path)

    def failing(path: Path) -> list[str]:
        if path == paths[1]:
            raise PassingError("the disk failed")
        return [path.read_text()]

    values = [value for _, value in read_all(paths[0].parent, paths, failing, "1", total=3)]
    assert values[1] == "the disk failed"
    again = Reader()
    assert every(paths, again)[1] == "Report 1, größer." and again.read == ["1.txt"]


def test_what_was_read_before_an_interrupt_is_kept(tmp_path) -> None:
    paths = tree(tmp_path, 1_100)
    rows = read_all(paths[0].parent, paths, Reader(), "1", total=len(paths), threads=1)
    for _ in range(501):
        next(rows)
    rows.close()
    rest = Reader()
    every(paths, rest)
    assert 0 < len(rest.read) <= 600


@pytest.mark.parametrize("where", [0, 5_000])
def test_a_damaged_cache_is_told_and_read_again(tmp_path, cache, where) -> None:
    paths = tree(tmp_path, 300)
    first = every(paths, Reader())
    (file,) = cache.iterdir()
    raw = bytearray(file.read_bytes())
    raw[where : where + 4_000] = b"\xff" * 4_000
    file.write_bytes(raw)
    with pytest.warns(UserWarning, match=r"damaged|malformed|not a database"):
        assert every(paths, Reader()) == first
    every(paths, Reader())
    whole = Reader()
    assert every(paths, whole) == first and whole.read == []


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch) -> None:
    paths = tree(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be used .*; the files are read each time"):
        assert len(every(paths, Reader())) == 3


def test_two_runs_at_once_read_the_same(tmp_path, cache) -> None:
    paths = tree(tmp_path, 40)
    one = read_all(paths[0].parent, paths, Reader(), "1", total=40)
    two = read_all(paths[0].parent, paths, Reader(), "1", total=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = list(zip(one, two, strict=True))
    assert all(first == second for first, second in pairs)
    with sqlite3.connect(next(cache.iterdir())) as table:
        assert table.execute("SELECT count(*) FROM files").fetchone() == (40,)
