"""Bad input, told in one line."""

from __future__ import annotations

import re
from pickle import UnpicklingError


class UserError(Exception):
    """Bad input, in one line: what was seen, wanted, and the mend.

    The command line prints the line and exits with status 2; nothing else is written.
    """


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
