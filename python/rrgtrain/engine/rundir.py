"""A run's directory: who may write it, what lies where, and files that are never half written."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rrgtrain.errors import UserError


def atomic_write(path: str | Path, data: bytes | str) -> None:
    """Writes `data` so that `path` holds either its old content or all of the new, also after a
    crash: temporary file beside it, fsync, rename, fsync of the directory."""
    path = Path(path)
    content = data.encode("utf-8") if isinstance(data, str) else data
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """A directory to fill, which becomes `path` when the block ends without an error.

    Everything in it is on the disk before the rename. What stood at `path` before is replaced;
    a crash between leaves nothing there, never a mixture. On an error nothing of it stays.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        yield partial
        sync_tree(partial)
        if path.exists():
            remove_directory(path)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_directory(path.parent)


def remove_directory(path: Path) -> None:
    """Removes a directory so that a crash never leaves half of it under its name."""
    gone = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    path.rename(gone)
    shutil.rmtree(gone)


def remove_partial(directory: Path) -> None:
    """Removes what atomic writes and removals left in `directory` when they were cut short.

    Only for the process that holds the run's lock: the files of a living writer look the same.
    """
    for left in directory.glob(".*.tmp"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def sync_tree(root: Path) -> None:
    """Every file and directory below `root`, and itself, on the disk."""
    for folder, _, files in os.walk(root):
        for name in files:
            handle = os.open(Path(folder, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_directory(Path(folder))


def sync_directory(path: Path) -> None:
    """Makes renames and new names in a directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RunDir:
    """The paths of one run. `RunDir(path)` only names them; `create` also takes the lock.

    The lock is the kernel's (flock), so it goes with the process that holds it, however that
    process ends, and no stale lock file ever blocks a resume.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.events = self.path / "events"
        self.samples = self.path / "samples.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.resume = self.path / "resume"
        self.failures = self.path / "failures"
        self.steps = self.path / "steps"
        self.summary = self.path / "summary.json"
        self.report = self.path / "report.html"
        self.lock = self.path / "run.lock"
        self._lock_handle: int | None = None

    @classmethod
    def create(cls, path: str | Path, *, resume: bool = False) -> RunDir:
        """A locked run directory: new (or empty of runs), or, with `resume`, an existing run.

        Raises `UserError` when another process is writing there, when a run is already there
        and `resume` is not set, or when it is set and there is nothing to resume.
        """
        run = cls(path)
        if run.path.exists() and not run.path.is_dir():
            raise UserError(f"--out {run.path} is a file; name a directory")
        if resume and not run.path.is_dir():
            raise UserError(f"no run in {run.path} to resume; drop --resume to start one there")
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            run._acquire()
        except OSError as error:
            raise UserError(f"--out {run.path} cannot be written: {error.strerror}") from error
        # Looked at under the lock only: of two processes that start at once, one sees the other's.
        found = run.contents()
        if resume != bool(found):
            run.close()
            if resume:
                raise UserError(f"no run in {run.path} to resume; drop --resume to start one there")
            raise UserError(
                f"{run.path} already holds a run ({', '.join(found)}); "
                "name another directory by --out"
            )
        run.events.mkdir(exist_ok=True)
        run.checkpoints.mkdir(exist_ok=True)
        sync_directory(run.path)
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """An existing run, for reading: takes no lock. Raises `UserError` where there is none."""
        run = cls(path)
        if not run.contents():
            raise UserError(f"no run in {run.path}; name the directory given to --out when it ran")
        return run

    def contents(self) -> list[str]:
        """What a run has left here, by file name; empty when this is not a run's directory."""
        files = (self.config, self.metrics, self.samples, self.summary, self.report)
        found = [p.name for p in files if p.exists()]
        for folder in (self.checkpoints, self.resume):
            if folder.is_dir() and any(folder.iterdir()):
                found.append(f"{folder.name}/")
        return found

    def close(self) -> None:
        if self._lock_handle is not None:
            _held.discard(self._lock_handle)
            os.close(self._lock_handle)
            self._lock_handle = None

    def __enter__(self) -> RunDir:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _acquire(self) -> None:
        handle = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
            os.close(handle)
            raise UserError(
                f"another process is writing {self.path} ({holder or 'it has just started'}); "
                "wait for it, or name another directory by --out"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        self._lock_handle = handle
        _held.add(handle)


_held: set[int] = set()


def _let_go_in_child() -> None:
    # A forked data worker that outlives a killed trainer would keep the lock with its copy.
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
