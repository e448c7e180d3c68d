"""The exceptions a user is meant to read."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

from rrgclinical.errors import UserError, unreadable

__all__ = [
    "NotFinite",
    "PassingError",
    "RewardError",
    "RewardNotFinite",
    "Stopped",
    "UserError",
    "cause_line",
    "unreadable",
]


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


class RewardError(UserError):
    """A reward term failed. The line names the term and the cause.

    Nothing is scored in its place: a loop that catches this saves what it needs to resume, and
    stops. `__cause__` is the term's own exception.
    """


class NotFinite(UserError):
    """A loss, gradient, log-probability or reward that is NaN or infinite; no weight has changed.

    A loop with a run directory saves the batch for `rrgtrain replay` before it stops.
    """


class RewardNotFinite(RewardError, NotFinite):
    """A reward term gave NaN or an infinity."""


class Stopped(UserError):
    """Report a run that ended early and can go on.

    It ended by a signal, a failing reward or a full disk.

    The command line prints the line with the command that resumes the run, and exits with
    `status`: 75 (EX_TEMPFAIL, try again later), or 130 after an interrupt from the keyboard.
    """

    status = 75


def cause_line(error: Exception) -> str:
    """Say in one line why a reader failed.

    That is what bad input says of itself; of anything else its type and place too.
    """
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, UserError):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {line}{where}"
