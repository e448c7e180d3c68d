"""Files that are written whole or not at all, and places that take none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write, read_whole, read_whole_text, require_file_place


def kinds(folder: Path) -> list[tuple[str, int]]:
    return sorted((p.name, p.lstat().st_mode) for p in folder.iterdir())


def test_a_rename_never_stands_where_something_else_than_a_file_was(tmp_path: Path) -> None:
    # as root `--svg /dev/null` made a plain file of it, for every program of the machine
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-null").symlink_to(os.devnull)
    (tmp_path / "to-stdout").symlink_to("/proc/self/fd/1")
    before = kinds(tmp_path)
    for name in ("pipe", "folder", "to-null", "to-stdout"):
        for write in (require_file_place, lambda path: atomic_write(path, "text")):
            with pytest.raises(UserError, match="; name a file"):
                write(tmp_path / name)
    assert kinds(tmp_path) == before


def test_files_and_links_to_files_are_written(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("new", "there", "link", "dangling"):
        atomic_write(tmp_path / name, name)
        assert (tmp_path / name).read_text() == name
    with pytest.raises(UserError, match="is a file; name a file in a directory"):
        require_file_place(tmp_path / "new" / "x")
    assert not list(tmp_path.glob(".*"))


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    """A pipe without a writer would be waited for, a device read until memory is gone."""
    (tmp_path / "whole").write_bytes(b"all of it")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    assert read_whole(tmp_path / "whole") == b"all of it"
    for name in (tmp_path / "pipe", tmp_path / "link", "/dev/zero", "/dev/null"):
        with pytest.raises(UserError, match="is a pipe or a device, .*; copy it to a file"):
            read_whole(name)
    with pytest.raises(IsADirectoryError):
        read_whole(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "none")


def test_a_text_of_any_system_has_line_feeds(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_whole_text(file, "utf-8-sig") == "one\ntwo\nthree\n"
    with pytest.raises(UnicodeDecodeError):
        read_whole_text(file, "ascii")
