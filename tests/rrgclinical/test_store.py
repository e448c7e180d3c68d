"""The store survives killed writers and damage, and never mixes texts up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from rrgclinical.store import Store
from rrgtrain.errors import UserError


def only_file(store: Store) -> Path:
    (file,) = store.path.iterdir()
    return file


def test_what_was_put_is_got_also_by_a_later_store(tmp_path: Path) -> None:
    values = {"": b"", "a": b"1" * 1000, "é\ud800": b"\x00rrg1\xff"}
    store = Store(tmp_path, "m")
    for key, value in values.items():
        store.put(key, value)
    for reader in (store, Store(tmp_path, "m")):
        assert {key: reader.get(key) for key in values} == values
        assert reader.get("b") is None
    assert Store(tmp_path, "other").get("a") is None


@pytest.mark.parametrize("cut", [1, 30, 44, 60])
def test_a_record_cut_off_is_not_there_and_the_rest_is(tmp_path: Path, cut: int) -> None:
    store = Store(tmp_path, "m")
    store.put("whole", b"w" * 50)
    size = only_file(store).stat().st_size
    store.put("half", b"h" * 50)
    os.truncate(only_file(store), size + cut)
    reader = Store(tmp_path, "m")
    assert (reader.get("whole"), reader.get("half")) == (b"w" * 50, None)
    reader.put("half", b"h" * 50)
    assert Store(tmp_path, "m").get("half") == b"h" * 50


def test_a_damaged_payload_is_not_returned(tmp_path: Path) -> None:
    store = Store(tmp_path, "m")
    store.put("a", b"a" * 50)
    store.put("b", b"b" * 50)
    content = bytearray(only_file(store).read_bytes())
    content[60] ^= 1
    only_file(store).write_bytes(content)
    reader = Store(tmp_path, "m")
    assert (reader.get("a"), reader.get("b")) == (None, b"b" * 50)


def test_a_file_somebody_deleted_is_missed_not_fatal(tmp_path: Path) -> None:
    store = Store(tmp_path, "m")
    store.put("a", b"a")
    reader = Store(tmp_path, "m")
    only_file(store).unlink()
    assert reader.get("a") is None


def write_on(store: Store, name: str) -> None:
    for i in range(10**6):
        store.put(f"{name}{i}", f"{name}{i}".encode() * 100)


def test_killed_writers_leave_what_they_finished(tmp_path: Path) -> None:
    store = Store(tmp_path, "m")
    store.put("parent", b"p")
    # forked with the parent's file open: each child must write to its own
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_on, args=(store, name)) for name in "xy"]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 30
    while len(Store(tmp_path, "m")) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    for writer in writers:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    reader = Store(tmp_path, "m")
    assert len(reader) >= 20
    assert reader.get("parent") == b"p"
    for name in "xy":
        count = next(i for i in range(10**6) if reader.get(f"{name}{i}") is None)
        for i in range(count):
            assert reader.get(f"{name}{i}") == f"{name}{i}".encode() * 100


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="reward.cache: .*file/m cannot be made"):
        Store(tmp_path / "file", "m")


def test_the_folder_of_locks_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("rrgclinical.store._LOCKS", {})
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / f"rrgclinical-{os.getuid()}"
    store = Store(tmp_path / "cache", "v1")
    for spoil in (lambda: folder.write_text(""), lambda: folder.symlink_to(tmp_path / "elsewhere")):
        spoil()
        with pytest.raises(UserError, match="is not a folder of yours; remove it, or set TMPDIR"):
            store.once(["a"], lambda part: None)
        folder.unlink()
    store.once(["a"], lambda part: None)
    assert [f.suffix for f in folder.iterdir()] == [".lock"]
    assert not any((tmp_path / "elsewhere").iterdir())
