"""Files that are written whole or not at all, and places that take none."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rrgclinical.common import files, json_reader
from rrgclinical.common.errors import UserError, outside_line
from rrgclinical.common.files import (
    atomic_write,
    make_parents,
    read_whole,
    remove_empty,
    remove_own,
    require_file_place,
)
from rrgclinical.common.host import memory_of_host
from rrgclinical.common.json_reader import DEEPEST


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
    for place in (tmp_path / "new" / "x", tmp_path / "new" / "deep" / "x"):
        with pytest.raises(UserError, match="new is a file, and no directory; name another place"):
            require_file_place(place)
    longest = tmp_path / ("é" * 127)
    atomic_write(longest, "of 254 bytes")
    assert longest.read_text() == "of 254 bytes"
    assert not list(tmp_path.glob(".*"))


def test_a_place_that_no_file_can_take_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "closed").mkdir()
    before = kinds(tmp_path)
    access = os.access
    # a test that runs as root may write everywhere
    monkeypatch.setattr(
        files.os, "access", lambda path, mode, **_: path.name != "closed" and access(path, mode)
    )
    for name, line in (
        ("loop", "is a link that leads back to itself"),
        ("loop/x.svg", "loop is a link that leads nowhere, and no directory"),
        ("dangling/deep/x.svg", "dangling is a link that leads nowhere, and no directory"),
        ("closed/x.svg", "closed is closed to this user; give this user the right to it"),
        ("closed/deep/x.svg", "closed is closed to this user"),
    ):
        for write in (require_file_place, lambda path: atomic_write(path, "text")):
            with pytest.raises(UserError, match=line):
                write(tmp_path / name)
    require_file_place(tmp_path / "lacking" / "deep" / "x.svg")
    assert kinds(tmp_path) == before


def test_an_error_names_the_file_and_not_what_stands_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a.json").write_text("old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError) as caught:
        atomic_write(tmp_path / "a.json", "text")
    assert outside_line(caught.value).startswith(f"{tmp_path / 'a.json'}: No space left on device")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.json", "old")]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Exception("Input/output error (os error 5)"), "Input/output error: look at the disk"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory: use less of it"),
        (RuntimeError("can't start new thread"), "can't start new thread: raise the limit of proc"),
        (Exception("nothing of the machine"), ""),
    ],
)
def test_what_libraries_say_of_the_machine_is_a_line(error: Exception, line: str) -> None:
    """tokenizers and safetensors tell a number of the system in their text alone."""
    assert outside_line(error).startswith(line) and bool(outside_line(error)) == bool(line)


def test_directories_that_were_made_for_nothing_go_again(tmp_path: Path) -> None:
    made = make_parents(tmp_path / "a" / "b" / "c.txt")
    assert made == [tmp_path / "a" / "b", tmp_path / "a"] and made[0].is_dir()
    (tmp_path / "a" / "of another").write_text("")
    remove_empty(made)
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["of another"]
    assert make_parents(tmp_path / "x.txt") == []


def test_only_a_file_of_its_own_is_removed(tmp_path: Path) -> None:
    begin = b'{"id": '
    for name, content in (("own", begin + b'"a"}'), ("cut", begin[:3]), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        remove_own(tmp_path / name, begin)
        assert not (tmp_path / name).exists()
    remove_own(tmp_path / "lacking", begin)
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    before = kinds(tmp_path)
    for name in ("notes", "link", "folder"):
        with pytest.raises(UserError, match="is there, and not of an earlier call"):
            remove_own(tmp_path / name, begin)
    assert kinds(tmp_path) == before


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    """A pipe without a writer would be waited for, a device read until memory is gone."""
    (tmp_path / "whole").write_bytes(b"all of it")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    assert read_whole(tmp_path / "whole") == b"all of it"
    for name in (tmp_path / "pipe", tmp_path / "link", "/dev/null"):
        with pytest.raises(UserError, match="is a pipe or a device, .*; copy it to a file"):
            read_whole(name)
    with pytest.raises(IsADirectoryError):
        read_whole(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "none")


def test_a_disk_that_is_read_only_and_a_closed_directory_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By root too, who may write wherever the disk is written."""
    here = os.statvfs(tmp_path)
    with monkeypatch.context() as on_a_disc:
        flags = SimpleNamespace(f_flag=here.f_flag | os.ST_RDONLY)
        on_a_disc.setattr(os, "statvfs", lambda path: flags)
        with pytest.raises(UserError, match="lies on a disk that is read only; name another place"):
            require_file_place(tmp_path / "new" / "file")

    def closed(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "lstat", closed)
    with pytest.raises(UserError, match="a directory above it is closed to this user; give this"):
        require_file_place(tmp_path / "file")


# JSON that others wrote: read, or refused as a ValueError in one line.
BAD: dict[bytes, str] = {
    b"[" * DEEPEST + b"[]" + b"]" * DEEPEST: "nested too deeply",
    b'{"a": ' * DEEPEST + b"{}" + b"}" * DEEPEST: "nested too deeply",
    b'"\xff"': "byte 1 is not UTF-8",
    '{"a": 1}'.encode("utf-16"): "not UTF-8",
    b"9" * 309: "an integer of 309 digits",
    b'{"a": ' + b"9" * 5000 + b"}": "an integer of 5000 digits",
    b"": "Expecting value",
    b"{": "Expecting",
    b"[7]": "JSON of a list, wanted a dict",
    b"null": "JSON of a NoneType, wanted a dict",
}


def test_whatever_is_wrong_is_one_line(tmp_path: Path) -> None:
    for content, told in BAD.items():
        path = tmp_path / "file"
        path.write_bytes(content)
        for read in (
            lambda c=content: json_reader.parse(c, dict),
            lambda p=path: json_reader.read(p, dict),
        ):
            with pytest.raises(ValueError, match=told) as caught:
                read()
            assert "\n" not in str(caught.value)


def test_what_is_right_is_read(tmp_path: Path) -> None:
    right: dict[bytes, Any] = {
        b'\xef\xbb\xbf{"a": "\xc3\xa9"}': {"a": "é"},
        b"9" * 308: int("9" * 308),
        b'["' + b"9" * 400 + b'"]': ["9" * 400],
        b"[NaN]".replace(b"NaN", b"1.5e3"): [1500.0],
    }
    for content, value in right.items():
        assert json_reader.parse(content) == value
    assert float(json_reader.parse(b"9" * 308)) < float("inf")


def test_no_more_of_a_file_is_read_than_a_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_reader, "LARGEST", 8)
    path = tmp_path / "file"
    path.write_bytes(b"[1, 2]")
    assert json_reader.read(path, list) == [1, 2]
    path.write_bytes(b"[1, 2, 3]")
    with pytest.raises(ValueError, match="more than"):
        json_reader.read(path)
    with pytest.raises(ValueError, match="no regular file"):
        json_reader.read("/dev/null")
    with pytest.raises(IsADirectoryError):
        json_reader.read(tmp_path)


GIB = 1 << 30


def group(folder: Path, limit: str, current: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    half = cached // 2
    (folder / "memory.stat").write_text(f"anon 7\nactive_file {half}\ninactive_file {half}\n")


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {512 << 20} kB\n")
    (proc / "self" / "cgroup").write_text("0::/slurm/job_1\n")
    assert memory_of_host(proc, groups) == 512 * GIB
    group(groups / "slurm" / "job_1", "max", 3 * GIB, 0)
    group(groups / "slurm", str(64 * GIB), 30 * GIB, 20 * GIB)
    assert memory_of_host(proc, groups) == 54 * GIB, "files are dropped when it is wanted"
    group(groups / "slurm" / "job_1", str(16 * GIB), 20 * GIB, 0)
    assert memory_of_host(proc, groups) == 0
    assert memory_of_host(tmp_path / "none", tmp_path / "none") is None


def test_the_limit_of_an_older_control_group_counts(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    lines = "9:cpu,cpuacct:/\n5:memory:/slurm/job_1\n0::/\n"
    (proc / "self" / "cgroup").write_text(lines)
    for folder, limit in (("slurm/job_1", 2**63 - 4096), ("slurm", 64 * GIB)):
        place = groups / "memory" / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (place / "memory.usage_in_bytes").write_text(f"{30 * GIB}\n")
        (place / "memory.stat").write_text(f"inactive_file 7\ntotal_inactive_file {20 * GIB}\n")
    assert memory_of_host(proc, groups) == 54 * GIB
    (groups / "memory" / "slurm" / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert memory_of_host(proc, groups) is None
