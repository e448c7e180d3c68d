"""Checkpoints are whole or absent: cut at any line, refused by the disk anywhere, spoilt."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pickle
import resource
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import filesystem

from rrgclinical.common import files
from rrgpolicy.ranks import ranks
from rrgtrain.errors import Stopped, UserError
from rrgtrain.state import store
from rrgtrain.state.store import MANIFEST, STATE, load_checkpoint
from tests.pickled import RAN, Code
from tests.rrgtrain.state.saving import SavingStore

TENSORS, METADATA = "__0_0.distcp", ".metadata"


def state(number: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(number)
    return {
        "number": number,
        "weights": {"a": torch.randn(130, 128, generator=generator), "b": torch.tensor(number)},
        "optimizer": {0: {"step": torch.tensor(float(number))}},
    }


def same(found: Any, number: int) -> bool:
    wanted = state(number)
    return (
        found["number"] == number
        and torch.equal(found["weights"]["a"], wanted["weights"]["a"])
        and torch.equal(found["optimizer"][0]["step"], wanted["optimizer"][0]["step"])
    )


def two_in(directory: Path) -> SavingStore:
    """A store of the states 1 and 2."""
    kept = SavingStore(directory, 2)
    for number in (1, 2):
        kept.save("rl", state(number))
    return kept


def newest(directory: Path) -> Any:
    found = SavingStore(directory, 2).newest()
    return None if found is None else found.state


def test_the_newest_comes_back_and_the_last_ones_stay(tmp_path: Path) -> None:
    kept = SavingStore(tmp_path / "resume", 2)
    assert kept.newest() is None
    for number in range(1, 6):
        path = kept.save(f"rl-{number}", state(number))
        assert path.name == f"{number:06d}-rl-{number}"
        assert same(newest(tmp_path / "resume"), number)
    assert kept.names() == ["000004-rl-4", "000005-rl-5"]
    assert sorted(p.name for p in kept.directory.iterdir()) == kept.names(), "nothing else is left"


def test_a_tagged_one_stays_as_long_as_one_that_wants_it(tmp_path: Path) -> None:
    kept = SavingStore(tmp_path / "resume", 2)
    stayed = [(1, []), (2, ["rl-1"]), (3, ["rl-1"]), (4, ["rl-4"]), (5, ["rl-4"]), (6, ["rl-4"])]
    wanted = [[1], [1, 2], [1, 2, 3], [1, 3, 4], [4, 5], [4, 5, 6]]
    for (number, tagged), numbers in zip(stayed, wanted, strict=True):
        kept.save(f"rl-{number}", state(number), tagged=tagged)
        assert kept.names() == [f"{n:06d}-rl-{n}" for n in numbers]
    assert kept.labelled("rl-4") == kept.directory / "000004-rl-4"
    with pytest.raises(UserError, match="the checkpoint rl-1 is gone from .*; restore it from"):
        kept.labelled("rl-1")


def test_a_signal_while_one_is_read_is_no_fault_of_it(tmp_path, monkeypatch):
    kept = two_in(tmp_path / "resume")

    def signalled(*_: object, **__: object) -> None:
        raise Stopped("stopped by SIGTERM")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", signalled)
        with pytest.raises(Stopped, match="^stopped by SIGTERM$"):
            kept.newest()
    assert same(newest(tmp_path / "resume"), 2)


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"{")])
def test_one_that_cannot_say_what_it_wants_stops_no_save(spoil, tmp_path):
    kept = SavingStore(tmp_path / "resume", 3)
    for number in range(1, 4):
        kept.save(f"rl-{number}", state(number), tagged=["rl-1"])
    spoil(kept.directory / "000002-rl-2" / MANIFEST)
    kept.save("rl-4", state(4), tagged=["rl-1"])
    assert len(kept.names()) == 4
    kept.save("rl-5", state(5), tagged=["rl-1"])
    assert kept.names() == [f"{n:06d}-rl-{n}" for n in (1, 3, 4, 5)]


def test_a_rank_on_a_disk_of_its_own_is_refused(tmp_path, monkeypatch):
    """Its part would lie where no resume finds it."""
    kept = SavingStore(tmp_path / "resume", 1)
    kept.save("rl-1", state(1))
    gather = ranks.gather_aside

    def other(group: Any, value: Any, error: Exception | None = None) -> list[Any]:
        return [True, False] if value is True else gather(group, value, error)

    monkeypatch.setattr(ranks, "gather_aside", other)
    with pytest.raises(OSError, match="rank 1 does not see this directory, and all must share it"):
        kept.save("rl-2", state(2))
    assert sorted(p.name for p in kept.directory.iterdir()) == ["000001-rl-1"]


def test_a_checkpoint_of_python_3_13_is_read() -> None:
    """There a path's class is of the module `pathlib._local`."""
    written = b"cpathlib._local\nPosixPath\n(Vresume\ntR."
    assert store._Unpickler(io.BytesIO(written)).load() == Path("resume")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def nonsense(path: Path) -> None:
    path.write_bytes(b'{"format": 2, "files": {}}' if path.name == MANIFEST else b"\x80nonsense")


def not_a_mapping(path: Path) -> None:
    path.write_text("[]")


def of_our_own(path: Path, content: object) -> None:
    """Another pickle in the file's place, with the checksum that the manifest wants."""
    if path.name == STATE:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    manifest = path.with_name(MANIFEST)
    listed = json.loads(manifest.read_text())
    crc = zlib.crc32(path.read_bytes())
    listed["files"][path.name] = {"bytes": path.stat().st_size, "crc32": crc}
    manifest.write_text(json.dumps(listed))


def code(path: Path) -> None:
    of_our_own(path, {"weights": Code()})


def a_list(path: Path) -> None:
    of_our_own(path, [1])


SPOILT = [
    (n, how) for n in (TENSORS, METADATA, STATE, MANIFEST) for how in (flip, cut, empty, nonsense)
]


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        *SPOILT,
        *((STATE, Path.unlink), (STATE, code), (STATE, a_list)),
        *((TENSORS, Path.unlink), (METADATA, Path.unlink), (METADATA, code)),
        *((MANIFEST, Path.unlink), (MANIFEST, not_a_mapping)),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_broken_newest_falls_back_and_says_so(name, spoil, tmp_path):
    kept = two_in(tmp_path / "r")
    spoil(kept.directory / "000002-rl" / name)
    assert kept.about()["tagged"] == [], "of the one before it, where that cannot be read"
    with pytest.warns(UserWarning, match=r"000002-rl is broken \(.+\); falling back to 000001-rl"):
        found = kept.newest()
    assert found is not None and same(found.state, 1)
    assert kept.save("rl", state(3)).name == "000003-rl"
    assert same(newest(tmp_path / "r"), 3)
    assert kept.names() == ["000001-rl", "000003-rl"], "a broken one is no reserve"
    assert RAN == []


def test_all_broken_is_no_beginning(tmp_path: Path) -> None:
    kept = SavingStore(tmp_path / "r", 2)
    kept.save("rl", state(1))
    flip(kept.directory / "000001-rl" / TENSORS)
    with pytest.raises(UserError, match=r"another CRC-32 .*none before it is whole; restore") as e:
        kept.newest()
    assert "\n" not in str(e.value)


# Every file that writes a checkpoint: the disk is looked at before each of their lines that the
# writing thread comes to. The main thread only copies.
WRITERS = {store.__file__, store.write_checkpoint.__code__.co_filename, files.__file__}

OnDisk = dict[Path, bytes | None]
"""Content of each file of a directory, None of a folder."""


def on_disk(directory: Path) -> OnDisk:
    found = sorted(directory.rglob("*"))
    return {p.relative_to(directory): None if p.is_dir() else p.read_bytes() for p in found}


def moments_of_a_save(kept: SavingStore, number: int) -> tuple[int, list[OnDisk]]:
    """The number of lines of a save, and what a kill before any of them leaves, each once."""
    lines, moments = 0, [on_disk(kept.directory)]

    def look(frame: FrameType, event: str, _: object) -> Callable | None:
        nonlocal lines
        if frame.f_code.co_filename not in WRITERS:
            return None
        if event == "line":
            lines += 1
            now = on_disk(kept.directory)
            if now != moments[-1]:
                moments.append(now)
        return look

    threading.settrace(look)
    kept.save("rl", state(number))
    threading.settrace(None)  # type: ignore[arg-type]
    return lines, moments


def test_killed_before_any_line_of_a_save_the_old_or_the_new_is_whole(tmp_path: Path) -> None:
    """As kill -9: nothing is cleaned up, and what was written stays."""
    kept = two_in(tmp_path / "r")
    lines, moments = moments_of_a_save(kept, 3)
    assert lines > 80 and len(moments) > 10
    outcomes = []
    for number, moment in enumerate(moments):
        directory = tmp_path / str(number)
        directory.mkdir()
        for path, content in moment.items():
            if content is None:
                (directory / path).mkdir()
            else:
                (directory / path).write_bytes(content)
        kept = SavingStore(directory, 2)
        assert {path.name for path in directory.glob("[!.]*")} == set(kept.names())
        found = [load_checkpoint(directory / name).state["number"] for name in kept.names()]
        assert found in ([1, 2], [1, 2, 3], [2, 3]), [str(path) for path in moment]
        assert same(newest(directory), found[-1])
        outcomes.append(found[-1])
    assert outcomes == sorted(outcomes) and set(outcomes) == {2, 3}


class FullDisk:
    """Lets the first `room` calls that write pass, and refuses the rest."""

    def __init__(self, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self.calls = room, 0
        for owner, name in (
            (os, "fsync"),
            (Path, "rename"),
            (Path, "mkdir"),
            (Path, "open"),
            (filesystem, "_write_item"),
        ):
            monkeypatch.setattr(owner, name, self._refusing(getattr(owner, name)))

    def _refusing(self, real: Callable) -> Callable:
        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **options)

        return call


def test_a_full_disk_at_any_operation_leaves_what_was_kept(tmp_path: Path) -> None:
    failed = 0
    for room in range(60):
        directory = tmp_path / str(room)
        kept = two_in(directory)
        with pytest.MonkeyPatch.context() as patch:
            disk = FullDisk(room, patch)
            with contextlib.suppress(OSError):
                kept.save("rl", state(3))
        if disk.calls <= room:
            break  # all that a save does has been refused once
        failed += 1
        found = newest(directory)
        assert same(found, 2) or same(found, 3), f"after {room} operations"
        left = [p for p in directory.iterdir() if p.name.startswith(".")]
        assert not left, "what was half written makes room again"
        assert same(kept.newest().state, found["number"])
        kept.save("rl", state(4))  # once there is room, it goes on
        assert same(newest(directory), 4)
    assert failed > 10


@pytest.mark.parametrize("room", [100, 20_000, 70_000])
def test_a_disk_that_ends_within_a_file(room: int, tmp_path: Path) -> None:
    """The error is the system's own, whatever PyTorch makes of it."""
    kept = SavingStore(tmp_path, 2)
    kept.save("rl", state(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            kept.save("rl", {**state(2), "more": torch.zeros(200, 200)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in tmp_path.iterdir()] == ["000001-rl"]


def test_a_rank_may_look_before_the_first_has_made_the_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "is_main", lambda: False)
    late = SavingStore(tmp_path / "resume", 1)
    assert late.names() == [] and late.about() == {} and not late.directory.exists()
