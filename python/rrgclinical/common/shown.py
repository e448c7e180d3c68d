"""Text as a person may see it: without secrets, without control characters.

A secret is the value of an interpolation, `${oc.env:KEY}`, which stands as it was written, and what
an address carries: user, password, keys of the query, a token among the parts of the path.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from urllib.parse import quote

_USER = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_QUERY = re.compile(
    r"([?&](?:[\w.-]*[_.-])?(?:api|access|auth)?(?:key|token|secret|password|signature|sig)=)"
    r"[^&#\s'\"]+",
    re.IGNORECASE,
)
# A part of a path that is no word: long, and with a capital or a digit, or called a secret.
_LONG = r"(?=[^/\s?#'\"]{12})(?=[^/\s?#'\"]*[A-Z0-9])"
_CALLED = r"(?=[^/\s?#'\"]*(?:secret|token|passw|sk-|hf_))"
_PATH = re.compile(rf"(?<=[^:/]/)(?:{_LONG}|{_CALLED})[^/\s?#'\"]+")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_SETTING = re.compile(
    r"((?:^|[\s{,.])[\w-]*(?:api_?key|token|secret|password)\s*[:=]\s*)(?!\$\{)[^\s,}]+",
    re.IGNORECASE,
)
LONGEST_LINE = 4_000
"""Characters of a line about bad input, which may hold a cell of a table."""
SHORTEST = 6
"""Characters of a value that is looked for in texts: a shorter one would be met by chance."""
PART = 4
"""Characters of a key in a row that are hidden where a server sends a part of it back."""
_written: dict[str, str] = {}
# C0, C1, the separators that end a line, what turns the direction of writing around, and half
# characters, which no file can hold: bytes of a file's name that are no UTF-8.
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROLS = re.compile(f"[{_CONTROL}]")
_CONTROLS_AND_BREAKS = re.compile(f"[{_CONTROL}\t\n]")


def hide(value: str, written: str) -> None:
    """Show `value` as `written` from now on, in whatever passes through this module."""
    if len(value) >= SHORTEST and value != written:
        forms = (value, repr(value)[1:-1], json.dumps(value)[1:-1], html.escape(value))
        _written.update(dict.fromkeys((*forms, quote(value), quote(value, safe="")), written))


def hidden(text: str) -> str:
    """Put what was written in place of values that `hide` was told."""
    for value in sorted(_written, key=len, reverse=True):
        text = text.replace(value, _written[value])
    return text


def without(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in `text` by ***, and their parts.

    A part is any four characters in a row, of a secret or of what it is in base64, wherever it
    begins in what was encoded.
    """
    covered = [False] * len(text)
    for form in {form for secret in secrets if secret for form in (secret, *_base64(secret))}:
        size = min(PART, len(form))
        for part in {form[i : i + size] for i in range(len(form) - size + 1)}:
            place = text.find(part)
            while place >= 0:
                covered[place : place + size] = [True] * size
                place = text.find(part, place + 1)
    shown = "".join("\0" if hide else char for char, hide in zip(text, covered, strict=True))
    return re.sub("\0+", "***", shown)


def _base64(secret: str) -> list[str]:
    data = secret.encode()
    # the first and the last characters also tell of what stands beside
    forms = [
        base64.b64encode(bytes(k) + data).decode().rstrip("=")[k + (k > 0) :] for k in range(3)
    ]
    return [form[:-1] for form in forms if len(form) > PART]


def path_tokens(url: str) -> list[str]:
    """List the parts of an address's path that look like keys."""
    return _PATH.findall(url.partition("?")[0].partition("#")[0])


def shown_url(url: str) -> str:
    """An address without user, password and query, a token in its path as ***."""
    text = url.partition("?")[0].partition("#")[0]
    scheme, colons, rest = text.rpartition("://")
    host, slash, path = rest.partition("/")
    bare = f"{scheme}{colons}{host.rpartition('@')[2]}{slash}{path}".rstrip("/")
    return one_line(_PATH.sub("***", bare))


def redacted(text: str) -> str:
    """Replace the keys of addresses and settings by ***, and what `hide` was told."""
    text = _ADDRESS.sub(lambda address: _PATH.sub("***", address[0]), hidden(text))
    return _SETTING.sub(r"\1***", _QUERY.sub(r"\1***", _USER.sub("***", text)))


def shortened(text: str, most: int) -> str:
    """Show a text of more than `most` characters by its beginning and its end."""
    text = hidden(text)  # a part of a secret would not be met again
    left = len(text) - most
    half = most // 2
    return text if left <= 0 else f"{text[:half]} [{left} characters] {text[len(text) - half :]}"


def printable(text: str) -> str:
    """`text` with control characters as escapes (`\\x1b`); tabs and line breaks stay."""
    return _CONTROLS.sub(_escape, hidden(text))


def one_line(text: str) -> str:
    """`text` as one line of a terminal: line breaks and tabs are escapes, too."""
    return _CONTROLS_AND_BREAKS.sub(_escape, hidden(text))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
