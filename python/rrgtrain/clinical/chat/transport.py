"""One request to an OpenAI-compatible endpoint, with a deadline for the whole answer."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from rrgtrain.errors import UserError

# Worth another try: time-outs, conflicts, rate limits, and what the server calls its own fault.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_CHUNK = 65536
_SHOWN = 200


class PassingFailure(Exception):
    """A failure that another try may not have. `wait`: seconds that the server asks for."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Answer:
    """What came back: the message, and the tokens that the server counted."""

    text: str
    prompt_tokens: int
    completion_tokens: int


def post_chat(url: str, body: dict[str, Any], key: str | None, timeout: float) -> Answer:
    """Posts to `url`/chat/completions and reads the first choice.

    Raises:
        PassingFailure: no connection, no whole answer within `timeout` seconds, a status that
            passes (429, 5xx), or an answer that is cut off or no chat completion.
        UserError: any other status (a wrong key, model or address).
    """
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(
        f"{url}/chat/completions", data=json.dumps(body).encode(), headers=headers, method="POST"
    )
    deadline = time.monotonic() + timeout
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            content = _read(response, deadline)
    except urllib.error.HTTPError as error:
        with error:
            said = " ".join(error.read(_SHOWN).decode(errors="replace").split())
        if error.code in _PASSING:
            raise PassingFailure(
                f"HTTP {error.code}", _seconds(error.headers.get("Retry-After"))
            ) from error
        raise UserError(
            f"{url} answered HTTP {error.code} ({said or error.reason}); check the address, "
            "the model and the key"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise PassingFailure(str(reason) or type(error).__name__) from error
    return _answer(content)


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body; a server that drips it is cut off at the deadline too."""
    parts = []
    while part := response.read1(_CHUNK):
        parts.append(part)
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    return b"".join(parts)


def _answer(content: bytes) -> Answer:
    try:
        reply = json.loads(content)
    except ValueError as error:
        raise PassingFailure(f"an answer cut off after {len(content)} bytes") from error
    try:
        text = reply["choices"][0]["message"]["content"]
    except (LookupError, TypeError) as error:
        shown = content[:_SHOWN].decode(errors="replace")
        raise PassingFailure(f"an answer that is no chat completion: {shown}") from error
    if not isinstance(text, str):
        raise PassingFailure("an answer without text")
    usage = reply.get("usage") or {}
    return Answer(text, int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0)))


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, is answered by our own back-off."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
