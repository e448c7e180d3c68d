"""Bad input and the machine's refusals, told in one line."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError


class UserError(Exception):
    """Bad input, in one line: what was seen, wanted, and the mend.

    The command line prints the line and exits with status 2; nothing else is written.
    """


class PassingError(UserError):
    """A file that cannot be read now, whatever it holds: disk error, no decoder.

    Nothing is remembered of such a file.
    """

    @staticmethod
    def of(error: Exception) -> type[UserError]:
        """Return the class for an error met in reading.

        This one, or UserError if the file is at fault.

        Decoders raise OSError without a number; EINVAL is a place that a damaged file names.
        """
        number = error.errno if isinstance(error, OSError) else None
        return UserError if number in (None, errno.EINVAL) else PassingError


class Stopped(UserError):
    """Report a run that ended early and can go on.

    It ended by a signal, a failing reward or a full disk.

    The command line prints the line with the command that resumes the run, and exits with
    `status`: 75 (EX_TEMPFAIL, try again later), or 130 after an interrupt from the keyboard.
    """

    status = 75


def unreadable(error: Exception) -> str:
    """Says in one line why torch.load took a file for no checkpoint under `weights_only`.

    torch advises to load it without that; a file that is refused for its code must never be.
    """
    if not isinstance(error, UnpicklingError):
        return (str(error) or type(error).__name__).splitlines()[0]
    named = re.search(r"GLOBAL (\S+)|function (\S+)|class (\S+)", str(error))
    if named:
        return f"the file holds code ({next(filter(None, named.groups()))}), which is never run"
    return "the file is no pickle of tensors"


# --out= and --out=" ", which the shell makes of --out="$NAME" where NAME is not set.
_EMPTY_OPTION = re.compile(r"--[a-z][a-z-]*=\s*")
_DASH = re.compile(r"--[a-z][a-z-]*=-")
_ODD_TEXT = re.compile("[\0\ud800-\udfff]")
OTHER_PLACE = "give this user the right to it, or name another place"
READ_ONLY = "it lies on a disk that is read only; name another place"
_ROOM = "make room, or name another place"
_PROCESSES = "raise the limit of processes (ulimit -u)"
_MEMORY = "use less of it, or raise its limit"
_MENDS = {
    errno.EACCES: OTHER_PLACE,
    errno.EPERM: OTHER_PLACE,
    errno.EROFS: READ_ONLY,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "raise the limit of a file's size (ulimit -f), or name another place",
    errno.ELOOP: "a symbolic link leads back to itself; name the file it should lead to",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "a part of the path is a file; name a directory",
    errno.ENOENT: "it is gone, or was never there; name one that is there",
    errno.EEXIST: "name another place",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the machine has too many files open; end some programs",
    errno.EAGAIN: _PROCESSES,
    errno.ENOMEM: _MEMORY,
    errno.EIO: "look at the disk and its mount",
    errno.ESTALE: "look at the disk and its mount",
    errno.ETIMEDOUT: "look at the disk and its mount",
    errno.ENOTCONN: "look at the disk and its mount",
}


def outside_line(error: BaseException) -> str:
    """Say in one line what of the machine ended a command; "" of other errors.

    Those are files and disks, limits, and memory, that of a GPU included.
    """
    error = _of_system(error)
    if isinstance(error, OSError) and error.errno in _MENDS:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        about = f"{' -> '.join(names)}: " if names else ""
        return f"{about}{error.strerror}: {_MENDS[error.errno]}"
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, RuntimeError) and reason.startswith("Symlink loop"):
        return f"{reason}: {_MENDS[errno.ELOOP]}"  # Path.resolve of Python before 3.13
    if isinstance(error, RuntimeError) and reason.startswith("Could not determine home"):
        return "a path begins with ~ and the name of no user here: write the path out"
    if isinstance(error, ValueError) and reason.startswith("embedded null"):
        return "a path holds a NUL: write it without"
    refused = isinstance(error, RuntimeError) and "t allocate memory" in reason
    if isinstance(error, MemoryError) or refused or type(error).__name__ == "OutOfMemoryError":
        return f"out of memory{f' ({reason})' if reason else ''}: {_MEMORY}"
    if isinstance(error, RuntimeError) and reason == "can't start new thread":
        return f"{reason}: {_PROCESSES}"
    return ""


def _of_system(error: BaseException) -> BaseException:
    """Return the OSError behind one of safetensors or tokenizers, whose Rust tells it in words."""
    if isinstance(error, OSError) or not (number := re.search(r"\(os error (\d+)\)", str(error))):
        return error
    return OSError(int(number[1]), os.strerror(int(number[1])))


def not_written(out: Path, error: Exception) -> str:
    """Say in one line that --out cannot be written, why, and how to mend that."""
    cause = _of_system(error)
    reason = getattr(cause, "strerror", None) or str(error)
    if isinstance(cause, OSError):  # without the name of a file in it, which nobody asked for
        reason = outside_line(OSError(cause.errno, reason)) or reason
    return f"--out {out} cannot be written: {reason}"


def cause_line(error: BaseException) -> str:
    """Say in one line why a reader failed.

    That is what bad input says of itself; of anything else its type and place too.
    """
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, UserError):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {line}{where}"


def odd_text(text: str) -> bool:
    """Tell whether a text holds a NUL or half a character.

    Half a character is a byte of a name that is no UTF-8. Neither can be written to JSON, YAML or a
    page, in which names and settings end.
    """
    return _ODD_TEXT.search(text) is not None


def bad_word(words: Sequence[str]) -> str:
    """Say in one line which word of a command is none, if any.

    One without a letter: as a path it would be this directory, as a checkpoint a new policy, as a
    host every address. A dash alone: as a path it would be a file of that name. One that is no
    UTF-8.
    """
    for place, word in enumerate(words):
        blank = word.rstrip().removesuffix("=") if _EMPTY_OPTION.fullmatch(word) else ""
        if not word.strip():
            blank = f"the word after {words[place - 1] if place else 'rrgtrain'}"
        if blank:
            return f"{blank} is empty; write it out, or set the variable of the shell it came from"
        if word == "-" or _DASH.fullmatch(word):
            return f"{word} is no file here, and nothing goes through a pipe; name a file, or ./-"
    if (odd := next(filter(odd_text, words), None)) is not None:
        return f"{odd!r} is not UTF-8 text; rename the file that it names, or type it again"
    return ""
