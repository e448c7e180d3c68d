"""The exceptions a user is meant to read."""

from __future__ import annotations

import re
from pickle import UnpicklingError


class UserError(Exception):
    """Bad input, told in one line: what was seen, what was wanted, how to fix it.

    The command line prints the line and exits with status 2; nothing else is written.
    """


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
    """A run that ended before its end and can go on: by a signal, a failing reward, a full disk.

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
