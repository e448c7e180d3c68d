"""Mark what a command has left unfinished, to be begun again."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write, remove_left, require_directory_place

MARK = ".unfinished"


def is_left_by(out: Path, command: str) -> bool:
    """Tell whether `out` holds what this command had begun to write when it was killed."""
    mark = out / MARK
    return mark.is_file() and mark.read_bytes() == command.encode()


def mark(out: Path, command: str) -> None:
    """Say that what `out` will hold is unfinished.

    command: a digest of all that was asked for.
    """
    remove_left(out / MARK)
    atomic_write(out / MARK, command)


def unmark(out: Path) -> None:
    """Say that what `out` holds is whole."""
    (out / MARK).unlink(missing_ok=True)


def require_directory(out: Path) -> None:
    """Raise UserError for an --out that is no directory and cannot become one."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a directory")
    require_directory_place(out)


def require_free(out: Path, files: Collection[str], command: str) -> None:
    """Raise UserError for a file in the way, or one of `files` in `out`.

    Those that this command had left unfinished pass.
    """
    require_directory(out)
    there = [name for name in files if (out / name).exists()]
    if there and not is_left_by(out, command):
        raise UserError(
            f"{out} already holds an evaluation ({', '.join(there)}); name another directory by "
            "--out"
        )
    for name in files:
        remove_left(out / name)
