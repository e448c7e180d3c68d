"""Text as a person may see it: without secrets of addresses, without control characters."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_QUERY = re.compile(
    r"([?&](?:[\w.-]*[_.-])?(?:api|access|auth)?(?:key|token|secret|password|signature|sig)=)"
    r"[^&#\s'\"]+",
    re.IGNORECASE,
)
# C0, C1, the separators that end a line, and what turns the direction of writing around.
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROLS = re.compile(f"[{_CONTROL}]")
_CONTROLS_AND_BREAKS = re.compile(f"[{_CONTROL}\t\n]")


def shown_url(url: str) -> str:
    """An address without user, password and query."""
    text = url.partition("?")[0].partition("#")[0]
    scheme, colons, rest = text.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{colons}{host.rpartition('@')[2]}{slash}{path}".rstrip("/")


def redacted(text: str) -> str:
    """Replace user, password and query keys of addresses in `text` by ***."""
    return _QUERY.sub(r"\1***", _USER.sub("***", text))


def printable(text: str) -> str:
    """`text` with control characters as escapes (`\\x1b`); tabs and line breaks stay."""
    return _CONTROLS.sub(_escape, text)


def one_line(text: str) -> str:
    """`text` as one line of a terminal: line breaks and tabs are escapes, too."""
    return _CONTROLS_AND_BREAKS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
