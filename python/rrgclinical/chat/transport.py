"""Requests to an OpenAI-compatible endpoint by the openai package, each attempt with a deadline.

The package keeps connections and tries again what may pass (no connection, 408, 409, 429, 5xx) with
growing waits. Each attempt is one `send` of its HTTP client, which is bounded here as a whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import httpx2
import openai

from rrgclinical.chat.settings import ChatSettings
from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.shown import path_tokens, without

_LARGEST = 1 << 24
_SHOWN = 200
# The package's number of the attempt, in each request that it builds.
_RETRY = "x-stainless-retry-count"


@dataclass(frozen=True)
class Answer:
    """Hold the message and the tokens that the server counted.

    fault: why the message is no answer, as one that was cut or refused; "" where it is one.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    fault: str = ""


# A server that says more has not counted.
_MOST_TOKENS = 1 << 40

# (number from 1, seconds, the answer or None, the failure or None) of one request.
Tell = Callable[[int, float, "Answer | None", "str | None"], None]


class Endpoint:
    """An address with its key; an async context manager that holds the connections.

    Nothing that is raised or told shows the key, or what the address carries (user, password,
    query).
    """

    def __init__(self, settings: ChatSettings, tell: Tell) -> None:
        """tell: called after every attempt.

        Raises UserError for a key that no header can carry.
        """
        parts = urlsplit(settings.endpoint.rstrip("/"))
        query = dict(parse_qsl(parts.query))
        key = _key(settings.key_variable)
        self._url = settings.shown
        held = [key, *query.values(), parts.username, parts.password]
        held += path_tokens(settings.endpoint)
        self._secrets = [s for h in held if h for s in (h, unquote(h))]
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=parts._replace(query="", fragment="").geturl(),
            default_query=query,
            max_retries=settings.tries - 1,
            timeout=settings.timeout,
            http_client=_Bounded(
                settings, lambda n, s, answer, f: tell(n, s, answer, f and self._hide(f))
            ),
        )
        # The package insists on a key; where there is none, none is sent.
        self._headers: Any = {} if key else {"Authorization": openai.Omit()}

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    async def post(self, body: dict[str, Any]) -> Answer:
        """The first choice of a chat completion.

        Raises UserError for a redirect, a refusal (a wrong key, model or address), or the failure
        of the last attempt.
        """
        try:
            response = await self._client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                body=body,
                options={"headers": self._headers},
            )
        except openai.APIStatusError as error:
            raise UserError(self._refusal(error)) from None
        except openai.APIConnectionError as error:
            reason = self._hide(_reason(error.__cause__ or error))
            raise UserError(self._gave_up(error.request, reason)) from None
        return response.extensions["answer"]

    def _refusal(self, error: openai.APIStatusError) -> str:
        status, response = error.status_code, error.response
        if 300 <= status < 400:
            host = urlsplit(response.headers.get("location", "")).hostname or "another address"
            return (
                f"{self._url} redirects to {host}; redirects are not followed, so that the key "
                "stays with the host it is for: set endpoint to the address that answers"
            )
        if status in (408, 409, 429) or status >= 500:
            return self._gave_up(error.request, f"HTTP {status}")
        said = self._hide(" ".join(response.text.split())[:_SHOWN])
        mend = "check the address, the model and the key"
        if "max_completion_tokens" in said:
            mend = "set limit_name to max_completion_tokens"
        elif "temperature" in said:
            mend = "set temperature to null, which sends none"
        elif "response_format" in said:
            mend = "set json_mode to false"
        return f"{self._url} answered HTTP {status} ({said or response.reason_phrase}); {mend}"

    def _gave_up(self, request: httpx2.Request, reason: str) -> str:
        return (
            f"{self._url} failed {_number(request)} times, last with {reason}; "
            "is it up, and is the address right?"
        )

    def _hide(self, text: str) -> str:
        return without(text, self._secrets)


class _Bounded(openai.DefaultAsyncHttpxClient):
    """A client that follows no redirect, and whose `send` is one whole answer within `seconds`."""

    def __init__(self, settings: ChatSettings, tell: Tell) -> None:
        # A connection for each conversation, none for more, and none closed between two of them.
        count = settings.concurrency
        super().__init__(
            follow_redirects=False,
            # Not compressed: a small body must not become a large one.
            headers={"Accept-Encoding": "identity"},
            limits=httpx2.Limits(max_connections=count, max_keepalive_connections=count),
        )
        self._seconds, self._tell = settings.timeout, tell

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Sends, and reads the body: headers, bodies and errors that drip count as one wait."""
        began = time.perf_counter()
        answer = failure = None
        try:
            with anyio.fail_after(self._seconds):
                response = await self._read(request, options)
            if response.is_success:
                answer = response.extensions["answer"] = _answer(response)
            else:
                failure = f"HTTP {response.status_code}"
            return response
        except (TimeoutError, httpx2.TimeoutException):
            failure = f"no whole answer within {self._seconds:g} s"
            raise httpx2.ReadTimeout(failure, request=request) from None
        except httpx2.RequestError as error:
            failure = _reason(error)
            raise
        finally:
            # Neither of them where another failure has cancelled the request: it was none.
            if answer is not None or failure is not None:
                self._tell(_number(request), time.perf_counter() - began, answer, failure)

    async def _read(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        response = await super().send(request, **{**options, "stream": True})
        body = bytearray()
        try:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _LARGEST:
                    raise httpx2.DecodingError(
                        f"an answer of more than {_LARGEST >> 20} MiB", request=request
                    )
        finally:
            await response.aclose()
        headers = [(n, v) for n, v in response.headers.items() if n != "content-encoding"]
        return httpx2.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )


def _key(variable: str) -> str:
    """The key in an environment variable, "" where it is not set. UserError never shows it."""
    key = os.environ.get(variable, "").strip()
    bad = next((i for i, c in enumerate(key) if not "!" <= c <= "~"), None)
    if bad is not None:
        raise UserError(
            f"the key in {variable} holds {key[bad]!a} as its character {bad + 1}, which no key "
            "has (is it two lines, or not a key?); set the variable anew"
        )
    return key


def _answer(response: httpx2.Response) -> Answer:
    """Return the first choice. Raise httpx2.DecodingError, which is retried, without one."""
    content = response.content

    def wrong(reason: str) -> httpx2.DecodingError:
        return httpx2.DecodingError(reason, request=response.request)

    start = content[:_SHOWN].decode(errors="replace")
    try:
        reply = json_reader.parse(content)
    except ValueError:
        raise wrong(f"an answer that is not JSON ({len(content)} bytes: {start[:40]!r})") from None
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        content, refusal = message["content"], message.get("refusal")
        ended = choice.get("finish_reason")
    except (LookupError, TypeError, AttributeError):
        raise wrong(f"an answer that is no chat completion: {start}") from None
    fault = _FAULTS.get(ended, "") if isinstance(ended, str) else ""
    if isinstance(refusal, str) and refusal.strip():
        fault = f"the model refused: {refusal.strip()[:_SHOWN]!r}"
    text = _text(content)
    if text is None and not fault:
        raise wrong("an answer without text")
    counts = [_tokens(reply, name) for name in ("prompt_tokens", "completion_tokens")]
    return Answer(text or "", counts[0], counts[1], fault)


# By the server's `finish_reason`.
_FAULTS = {
    "length": "it was cut at the limit of tokens, perhaps while the model reasoned",
    "content_filter": "the server's filter kept it back",
}


def _text(content: Any) -> str | None:
    """Join the text of a message, which may come in parts; those of reasoning are left out."""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        texts = [p.get("text") for p in parts if p.get("type") in ("text", "output_text")]
        content = "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) and content else None


def _tokens(reply: dict[str, Any], name: str) -> int:
    """A count of the answer's usage; 0 where the server gives none, or anything but a count."""
    usage = reply.get("usage")
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 < count <= _MOST_TOKENS else 0


def _number(request: httpx2.Request) -> int:
    return 1 + int(request.headers[_RETRY])


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
