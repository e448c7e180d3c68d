"""Cached backends give what the backends give, and ask them once per text."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rrgclinical
from rrgclinical import Entities, build_extractor, build_labeller
from rrgclinical.cached import Cached, CachedLabeller, pack_entities, unpack_entities
from rrgclinical.entities import join_entities, split_entities
from rrgclinical.inference import sources
from rrgclinical.store import Store
from rrgtrain.errors import UserError

REPORTS = [
    "Cardiomegaly. No pleural effusion.",
    "",
    "The heart is normal. Small left pleural effusion, no pneumothorax.",
    "Cardiomegaly. No pleural effusion.",
    "nothing here",
]


class Named:
    """The rules with a fingerprint, remembering what they were asked."""

    def __init__(self, fingerprint: str | None = "v1") -> None:
        self.fingerprint = fingerprint
        self.asked: list[str] = []

    def label(self, reports: Sequence[str]) -> np.ndarray:
        self.asked.extend(reports)
        return build_labeller("rules").label(reports)


def same(a: Entities, b: Entities) -> bool:
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(Entities)]
    return all(
        x.dtype == y.dtype and np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y
        for x, y in pairs
    )


def test_entities_split_and_join_back() -> None:
    whole = build_extractor("rules").extract(REPORTS)
    parts = split_entities(whole)
    assert [part.reports for part in parts] == [[report] for report in REPORTS]
    assert same(join_entities(parts), whole)
    for part in parts:
        assert same(unpack_entities(pack_entities(part), part.reports[0]), part)


def test_a_model_that_does_not_say_what_it_is_leaves_no_file(tmp_path: Path) -> None:
    CachedLabeller(Named(None), cache=tmp_path).label(REPORTS, keep=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "reader", ["chexbert/labeller", "radgraph/annotator", "ratescore/extractor"]
)
def test_the_code_of_a_reading_is_all_that_it_imports(reader: str) -> None:
    changes_no_reading = {"backends", "common.shown", "hub", "progress_bars", "store"}
    # `from rrgclinical.common import json_reader` is of those too
    changes_no_reading |= {"common", "common.arguments", "common.errors", "common.files"}
    root = Path(rrgclinical.__file__).parent
    files = sources(f"{root}/{reader}.py")
    lines = [line for file in files for line in file.read_text().splitlines()]
    found = [re.match(r" *from rrgclinical\.(\S+) import", line) for line in lines]
    names = {match[1] for match in found if match} - changes_no_reading
    paths = {root / name.replace(".", "/") for name in names}
    assert {p / "__init__.py" if p.is_dir() else p.with_suffix(".py") for p in paths} <= {*files}


def test_the_latest_texts_are_held_and_the_kept_ones_always() -> None:
    asked: list[str] = []

    def compute(texts: list[str]) -> list[int]:
        asked.extend(texts)
        return [len(text) for text in texts]

    cached: Cached[int] = Cached(compute, capacity=2)
    assert cached(["kept"], keep=True) == [4]
    # more than the capacity in one call
    assert cached(["a", "bb", "ccc", "a"]) == [1, 2, 3, 1]
    assert cached(["ccc", "bb", "kept"]) == [3, 2, 4]
    assert asked == ["kept", "a", "bb", "ccc"]
    cached(["a"])
    assert asked[4:] == ["a"]


def test_a_model_that_loses_reports_is_refused() -> None:
    cached: Cached[int] = Cached(lambda texts: [1])
    with pytest.raises(ValueError, match="2 texts gave 1 results"):
        cached(["a", "b"])


FORK = multiprocessing.get_context("fork")


def read_slowly(folder: Path, texts: list[str]) -> None:
    """Labels `texts`, and notes what the labeller itself was asked."""
    named = Named()

    class Slow:
        fingerprint = "v1"

        def label(self, reports: Sequence[str]) -> np.ndarray:
            time.sleep(0.05)
            return named.label(reports)

    labels = CachedLabeller(Slow(), cache=folder / "cache").label(texts, keep=True)
    assert np.array_equal(labels, build_labeller("rules").label(texts))
    (folder / f"{texts[0]}.asked").write_text("\n".join(named.asked))


def test_processes_of_a_node_read_a_reference_once(tmp_path: Path) -> None:
    """Each has 20 texts, 10 of which the next one has too, and they start at once."""
    texts = [f"No effusion in case {i}." for i in range(40)]
    processes = [
        FORK.Process(target=read_slowly, args=(tmp_path, texts[begin : begin + 20]))
        for begin in (0, 10, 20)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    asked = [line for file in tmp_path.glob("*.asked") for line in file.read_text().splitlines()]
    assert sorted(asked) == sorted(texts)


def test_a_reader_that_fails_lets_its_texts_go(tmp_path: Path) -> None:
    class Failing(Named):
        def label(self, reports: Sequence[str]) -> np.ndarray:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        CachedLabeller(Failing(), cache=tmp_path / "cache").label(["No effusion."], keep=True)
    other = FORK.Process(target=read_slowly, args=(tmp_path, ["No effusion."]))
    other.start()
    other.join(30)
    assert other.exitcode == 0


def hold(path: Path, keys: list[str], taken: Any) -> None:
    store = Store(path, "m")
    taken.send([key for key in keys if store._hold(key)])


def test_an_interrupt_between_two_locks_leaves_no_key_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rank would wait for the key, while this one waits to tell it of the interrupt."""
    store, real, keys = Store(tmp_path, "m"), Store._hold, ["a", "b", "c"]

    def interrupted(self: Store, key: str) -> bool:
        held = real(self, key)
        if key == "b":
            raise KeyboardInterrupt
        return held

    monkeypatch.setattr(Store, "_hold", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.once(keys, lambda own: None)
    monkeypatch.undo()
    here, there = FORK.Pipe()
    process = FORK.Process(target=hold, args=(tmp_path, keys, there))
    process.start()
    process.join()
    assert here.recv() == keys


def test_references_in_memory_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrgclinical.cached.REFERENCES", 3)
    lengths = Cached(lambda texts: [len(t) for t in texts], capacity=0)
    assert lengths(["a", "bb", "ccc"], keep=True) == [1, 2, 3] and lengths.computed == 3
    assert lengths(["dddd"], keep=True) == [4]
    assert lengths(["bb", "ccc", "dddd"], keep=True) == [2, 3, 4] and lengths.computed == 4
    assert lengths(["a"], keep=True) == [1] and lengths.computed == 5, "the oldest was let go"


# The store survives killed writers and damage, and never mixes texts up.
def test_what_was_put_is_got_also_by_a_later_store(tmp_path: Path) -> None:
    values = {"": b"", "a": b"1" * 1000, "é\ud800": b"\x00rrg1\xff"}
    store = Store(tmp_path, "m")
    for key, value in values.items():
        store.put(key, value)
    for reader in (store, Store(tmp_path, "m")):
        assert {key: reader.get(key) for key in values} == values
        assert reader.get("b") is None
    assert Store(tmp_path, "other").get("a") is None
    for i in range(8):  # in files of random names
        (later := Store(tmp_path, "again")).put("a", b"%d" % i)
        os.utime(later._writer[2], (i, i))
    assert Store(tmp_path, "again").get("a") == b"7"


@pytest.mark.parametrize("cut", [1, 30, 44, 60, None])
def test_a_record_cut_off_or_damaged_is_not_there_and_the_rest_is(
    tmp_path: Path, cut: int | None
) -> None:
    store = Store(tmp_path, "m")
    store.put("a", b"a" * 50)
    (file,) = store.path.iterdir()
    size = file.stat().st_size
    store.put("b", b"b" * 50)
    content = bytearray(file.read_bytes())
    content[60] ^= cut is None  # in what "a" holds
    file.write_bytes(content[: size + cut] if cut else content)
    lost, whole = ("b", "a") if cut else ("a", "b")
    reader = Store(tmp_path, "m")
    damaged = nullcontext() if cut else pytest.warns(UserWarning, match="44 of .* is damaged, and")
    with damaged:
        assert (reader.get(whole), reader.get(lost)) == (whole.encode() * 50, None)
    reader.put(lost, b"again")
    os.utime(file, (2**32, 2**32))  # the damaged one is the newest
    with damaged:
        assert Store(tmp_path, "m").get(lost) == b"again"


def write_on(store: Store, name: str) -> None:
    for i in range(10**6):
        store.put(f"{name}{i}", f"{name}{i}".encode() * 100)


def test_killed_writers_leave_what_they_finished(tmp_path: Path) -> None:
    store = Store(tmp_path, "m")
    store.put("parent", b"p")
    # forked with the parent's file open: each child must write to its own
    writers = [FORK.Process(target=write_on, args=(store, name)) for name in "xy"]
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
