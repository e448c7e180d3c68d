"""Text for a person, without what only a server may see."""

from __future__ import annotations


def shown_url(url: str) -> str:
    """An address without user, password and query; nothing is taken out of any other text."""
    text = url.partition("?")[0].partition("#")[0]
    scheme, colons, rest = text.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{colons}{host.rpartition('@')[2]}{slash}{path}".rstrip("/")
