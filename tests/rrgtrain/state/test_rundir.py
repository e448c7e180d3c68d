"""Run directories: one writer, no run overwritten, no file half written."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rrgclinical.common.files import (
    atomic_directory,
    atomic_write,
    remove_directory,
    remove_left,
    remove_partial,
)
from rrgclinical.common.unfinished import unmark
from rrgtrain.errors import UserError
from rrgtrain.state.rundir import RunDir


def test_create_then_refuse_then_resume(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    with RunDir.create(out) as run:
        assert run.events.is_dir() and run.checkpoints.is_dir()
        atomic_write(run.config, "seed: 0\n")
        run.metrics.write_text("{}\n")
    with pytest.raises(UserError, match=r"already holds a run \(config.yaml, metrics.jsonl\)") as e:
        RunDir.create(out)
    assert "; go on with it by --resume, or name another directory by --out" in str(e.value)
    assert "\n" not in str(e.value)
    run.report.write_text("")
    with pytest.raises(UserError, match=r"\); name another directory by --out"):
        RunDir.create(out)
    with RunDir.create(out, resume=True) as run:
        assert run.config.read_text() == "seed: 0\n"


@pytest.mark.parametrize("place", ["checkpoints/step-1", "resume/000001-rl-0"])
def test_checkpoints_or_states_alone_are_a_run(place: str, tmp_path: Path) -> None:
    """A new run beside states would be resumed from what another has left."""
    RunDir.create(tmp_path).close()
    RunDir.create(tmp_path).close()
    (tmp_path / place).mkdir(parents=True)
    with pytest.raises(UserError, match=place.partition("/")[0] + "/"):
        RunDir.create(tmp_path)


def test_what_loses_nothing_begins_again(tmp_path: Path) -> None:
    """As after a kill: a configuration, and metrics without a row, are no progress."""
    with RunDir.create(tmp_path) as run:
        run.config.write_text("seed: 0\n")
        run.metrics.write_text("")
    RunDir.create(tmp_path).close()
    RunDir.create(tmp_path, resume=True).close()
    for name in ("samples.jsonl", "predictions.jsonl", "summary.json", "report.html"):
        (tmp_path / name).write_text("")
        with pytest.raises(UserError, match=name):
            RunDir.create(tmp_path)
        (tmp_path / name).unlink()


def test_a_configuration_that_is_no_run_s_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("somebody's\n")
    RunDir.create(tmp_path).close()
    assert (tmp_path / "config.before.yaml").read_text() == "somebody's\n"


def test_an_evaluation_begins_again_until_it_is_whole(tmp_path: Path) -> None:
    with RunDir.create(tmp_path, command="a") as run:
        run.config.write_text("")
        run.predictions.write_text("half")
    for other in ("another", None):
        with pytest.raises(UserError, match=r"\(config.yaml, predictions.jsonl\); name another"):
            RunDir.create(tmp_path, command=other)
    RunDir.create(tmp_path, command="a").close()
    unmark(tmp_path)
    with pytest.raises(UserError, match="already holds a run"):
        RunDir.create(tmp_path, command="a")


def test_a_directory_is_there_when_it_is_whole(tmp_path: Path) -> None:
    def fill(text: str, fail: bool = False) -> None:
        with atomic_directory(tmp_path / "policy") as partial:
            (partial / "a").write_text(text)
            (partial / "sub").mkdir()
            (partial / "sub" / "b").write_text(text)
            if fail:
                raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        fill("0", fail=True)
    assert not list(tmp_path.iterdir())
    fill("1")
    with pytest.raises(RuntimeError):
        fill("2", fail=True)
    assert (tmp_path / "policy" / "sub" / "b").read_text() == "1"
    fill("3")
    assert (tmp_path / "policy" / "a").read_text() == "3"
    assert [p.name for p in tmp_path.iterdir()] == ["policy"]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / f".policy.{'01' * 16}.tmp" / "sub").mkdir(parents=True)
    (tmp_path / f".config.yaml.{'01' * 16}.tmp").write_text("half")
    (tmp_path / ".node-of.a.host-0.tmp").touch()
    (tmp_path / "config.yaml").write_text("whole")
    theirs = [".hidden", ".notes.tmp", ".notes.0123.tmp"]
    for name in theirs:
        (tmp_path / name).write_text("somebody else's")
    remove_partial(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*theirs, "config.yaml"])


@pytest.mark.parametrize("resume", [False, True])
def test_who_takes_a_directory_removes_what_a_killed_writer_left_there(tmp_path, resume):
    """Training, evaluation and selection alike."""
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "run.lock").touch()
    for place in ("", "steps", "failures", *(["checkpoints", "resume"] if resume else [])):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / f".subset.json.{'a' * 32}.tmp").write_text("half")
        (tmp_path / place / f".data.{'b' * 32}.tmp" / "images").mkdir(parents=True)
    RunDir.create(tmp_path, resume=resume).close()
    assert not list(tmp_path.rglob(".*"))
    assert (tmp_path / "config.yaml").read_text() == "seed: 0\n"


def test_of_a_link_to_a_directory_the_link_is_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (tmp_path / "run").mkdir()
    link = tmp_path / "run" / "000001-rl-1"
    link.symlink_to(tmp_path / "elsewhere")
    remove_directory(link)
    (tmp_path / "run" / f".000002-rl-2.{'0' * 32}.tmp").symlink_to(tmp_path / "elsewhere")
    remove_partial(tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())
    assert (tmp_path / "elsewhere" / "file").exists()


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="drop --resume"):
        RunDir.create(tmp_path / "absent", resume=True)
    assert not (tmp_path / "absent").exists()
    RunDir.create(tmp_path / "bare").close()
    with pytest.raises(UserError, match="drop --resume"):
        RunDir.create(tmp_path / "bare", resume=True)
    RunDir.create(tmp_path / "bare").close()


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("f", "is a file"),
        ("f/g", "f is a file, and no directory; name another place"),
        *((out, "is a link that leads nowhere, and no directory") for out in ("link", "link/a/b")),
        ("loop", "is a link that leads nowhere, and no directory"),
    ],
)
def test_out_is_a_file_or_a_link_that_leads_nowhere_or_below_one(tmp_path, out, told):
    (tmp_path / "f").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match=told):
        RunDir.create(tmp_path / out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f", "link", "loop"]


@pytest.mark.parametrize(
    "there", [None, "runs/", "runs/a/", "runs/a/notes.txt", "runs/a/config.yaml"]
)
def test_a_run_refused_before_it_wrote_leaves_what_was_there(tmp_path, there):
    if there is not None:
        folder, _, file = there.rpartition("/")
        (tmp_path / folder).mkdir(parents=True)
        if file:
            (tmp_path / there).write_text("")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError), RunDir.create(tmp_path / "runs/a", command="digest"):
        raise ValueError
    assert sorted(tmp_path.rglob("*")) == before
    RunDir.create(tmp_path / "runs/a").discard()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_wrote_is_not_discarded(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path)
    run.config.write_text("seed: 0\n")
    with pytest.raises(KeyError), run:
        raise KeyError
    assert run.config.is_file() and run.lock.is_file()
    other = RunDir(tmp_path)  # as another rank names it: not its lock to remove
    other.discard()
    assert run.lock.is_file()


def test_a_lock_removed_while_it_is_waited_for_is_made_anew(tmp_path, monkeypatch):
    flock, calls = fcntl.flock, []

    def between(handle: int, how: int) -> None:
        if not calls:
            (tmp_path / "run.lock").unlink()
        calls.append(handle)
        flock(handle, how)

    monkeypatch.setattr("fcntl.flock", between)
    with RunDir.create(tmp_path), pytest.raises(UserError, match="another process"):
        RunDir.create(tmp_path)
    assert len(calls) == 3


HOLD = """
import os, sys
from rrgtrain.state.rundir import RunDir
run = RunDir.create(sys.argv[1], resume=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
if sys.argv[2] != "fork":
    print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the run's lock, or whose child does, until it is left."""
    (path / "config.yaml").write_text("")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    with held(tmp_path, "plain") as process:
        told = f"another process .*process {process.pid} on "
        with pytest.raises(UserError, match=told):
            RunDir.create(tmp_path, resume=True)
    RunDir.create(tmp_path, resume=True).close()


def test_lock_goes_with_a_killed_trainer_even_when_its_worker_lives_on(tmp_path: Path) -> None:
    with held(tmp_path, "fork") as process:
        process.kill()
        process.wait()
        RunDir.create(tmp_path, resume=True).close()


def test_half_a_file_of_a_killed_writer_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    target = tmp_path / f"{'long' * 20}.svg"
    left = [tmp_path / f".{target.name[:50]}.{letter * 32}.tmp" for letter in "ab"]
    others = [tmp_path / f".{'c' * 50}.{'d' * 32}.tmp", tmp_path / f".{target.name[:50]}.notes.tmp"]
    for path in (*left, *others):
        path.write_text("half")
    with left[1].open() as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        remove_left(target)
    atomic_write(target, "whole")
    assert set(tmp_path.iterdir()) == {target, left[1], *others}


def test_a_write_is_locked_while_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, real = tmp_path / "f", os.fsync

    def meanwhile(handle: int) -> None:
        remove_left(target)
        real(handle)

    monkeypatch.setattr("rrgclinical.common.files.os.fsync", meanwhile)
    atomic_write(target, "whole")
    assert target.read_text() == "whole"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(number, tmp_path, monkeypatch):
    """As flock fails on Lustre that was mounted without it."""

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(UserError, match=r"has no file locks \(.*\).* \(Lustre: -o flock\)") as e:
        RunDir.create(tmp_path / "run")
    assert "\n" not in str(e.value)
    assert not RunDir(tmp_path / "run").contents()
