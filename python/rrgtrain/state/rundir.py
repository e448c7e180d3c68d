"""Create the directory of a run and lock it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

from rrgclinical.common.errors import not_written
from rrgclinical.common.files import make_parents, remove_empty, remove_partial, sync_directory
from rrgclinical.common.unfinished import MARK, is_left_by, mark, require_directory, unmark
from rrgreport.run_files import RunFiles
from rrgtrain.errors import UserError


class RunDir(RunFiles):
    """The directory of one run, to write. `RunDir(path)` only names its files; `create` locks it.

    The lock is the kernel's (flock), so it goes with the process that holds it, however that
    process ends, and no stale lock file ever blocks a resume.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._lock_handle: int | None = None
        self._own: list[Path] = []
        self._before: Path | None = None

    @classmethod
    def create(
        cls, path: str | Path, *, resume: bool = False, command: str | None = None
    ) -> RunDir:
        """A locked run directory: new (or empty of runs), or, with `resume`, an existing run.

        command: the digest of an evaluation, which begins again where it was killed, see
        `unfinished`. A config.yaml that is no run's is kept as config.before.yaml.

        Raises `UserError` when another process is writing there, when a run is already there
        and `resume` is not set, or when it is set and there is nothing to resume.
        """
        run = cls(path)
        require_directory(run.path)
        if resume and not run.path.is_dir():
            raise UserError(f"no run in {run.path} to resume; drop --resume to start one there")
        foreign = run.config.exists() and not run.lock.exists()
        try:
            run._own = make_parents(run.lock)
            run._acquire()
        except OSError as error:
            raise UserError(not_written(run.path, error)) from error
        # Looked at under the lock only: of two processes that start at once, one sees the other's.
        found = run.contents()
        if resume and not found:
            run.discard()
            raise UserError(f"no run in {run.path} to resume; drop --resume to start one there")
        begun = run.has_progress() and not (command and is_left_by(run.path, command))
        if begun and not resume:
            run.close()
            evaluated = command or run.report.exists() or (run.path / MARK).exists()
            hint = "" if evaluated or not run.config.exists() else "go on with it by --resume, or "
            raise UserError(
                f"{run.path} already holds a run ({', '.join(found)}); {hint}name another "
                "directory by --out"
            )
        # what an earlier process was writing when it was killed; the lock says it is gone
        for folder in (run.path, run.checkpoints, run.resume, run.failures, run.steps):
            remove_partial(folder)
        if foreign and not resume:
            run._before = run.config.rename(run.config.with_name("config.before.yaml"))
        if command:
            mark(run.path, command)
        run.events.mkdir(exist_ok=True)
        run.checkpoints.mkdir(exist_ok=True)
        sync_directory(run.path)
        return run

    def has_progress(self) -> bool:
        """Tell whether something would be lost if the run began again."""
        begun = {self.config.name}
        if self.metrics.exists() and not self.metrics.stat().st_size:
            begun.add(self.metrics.name)
        return bool(set(self.contents()) - begun)

    def discard(self) -> None:
        """Close it; where nothing was written, a refused run's, remove what `create` made."""
        if self._lock_handle is None:
            return
        remove_empty([self.events, self.checkpoints])
        if not self.contents():
            unmark(self.path)
            self.lock.unlink(missing_ok=True)
            if self._before is not None:
                self._before.rename(self.config)
        self.close()
        remove_empty(self._own)

    def close(self) -> None:
        if self._lock_handle is not None:
            _held.discard(self._lock_handle)
            os.close(self._lock_handle)
            self._lock_handle = None

    def __enter__(self) -> RunDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.discard()
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
        except OSError as error:
            os.close(handle)
            if error.errno not in _NO_LOCKS:
                raise
            raise UserError(
                f"the file system of --out {self.path} has no file locks ({error.strerror}), which "
                "keep two runs apart; have it mounted with them (Lustre: -o flock), or name a "
                "directory elsewhere by --out"
            ) from error
        if not os.fstat(handle).st_nlink:  # a run that was refused has just removed it
            os.close(handle)
            self._acquire()
            return
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        self._lock_handle = handle
        _held.add(handle)


# As flock fails on Lustre mounted without `-o flock`, and on NFS without a lock daemon.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)

_held: set[int] = set()


def _let_go_in_child() -> None:
    # A forked data worker that outlives a killed trainer would keep the lock with its copy.
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
