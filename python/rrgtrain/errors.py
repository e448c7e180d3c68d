"""The one exception a user is meant to read."""

from __future__ import annotations


class UserError(Exception):
    """Bad input, told in one line: what was seen, what was wanted, how to fix it.

    The command line prints the line and exits with status 2; nothing else is written.
    """
