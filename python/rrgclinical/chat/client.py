"""Many conversations at once: bounded concurrency, retries, a cache, a record of the cost."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from rrgclinical.chat.answers import parse_json
from rrgclinical.chat.settings import ChatSettings
from rrgclinical.common.errors import UserError
from rrgclinical.store import Store

if TYPE_CHECKING:
    from rrgclinical.chat.transport import Answer, Endpoint

T = TypeVar("T")
Message = dict[str, str]


class Question(NamedTuple, Generic[T]):
    """A conversation and `read`, which takes its answer or raises ValueError for another form."""

    messages: list[Message]
    read: Callable[[str], T]
    json_wanted: bool = False


def json_question(messages: list[Message], check: Callable[[Any], T]) -> Question[T]:
    """A question answered in JSON: `check` takes the value, or raises ValueError."""
    return Question(messages, lambda text: check(parse_json(text)), json_wanted=True)


@dataclass
class Usage:
    """Count requests, tokens and cost since construction.

    `cost` is in the currency of the prices; `seconds` adds up the latency of every request,
    however many ran at once.
    """

    requests: int = 0
    retries: int = 0
    repairs: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


class Chat:
    """A language model behind an endpoint, asked in conversations."""

    def __init__(self, settings: ChatSettings) -> None:
        """Nothing is sent yet."""
        self.settings = settings
        self.usage = Usage()
        # Called before every request; an error that it raises stops `ask`, as a budget does.
        self.before_request: Callable[[], None] = lambda: None
        self._log = Path(settings.log).expanduser() if settings.log is not None else None
        self._lock = threading.Lock()
        self._store: Store | None = None
        if settings.cache is not None:
            self._store = Store(settings.cache, f"chat-{_digest(settings.model)}")

    def ask(self, questions: Sequence[Question[T]]) -> list[T]:
        """Ask all questions; return what each reads in its answer, in order.

        With a cache, processes of one node that have the same question ask it once.
        The model is told of an answer in another form and asked once more. The first question that
        fails stops the others.

        Raises:
            UserError: an endpoint that fails `tries` times, or refuses, or answers in the wrong
                form twice.
        """
        if self._store is None:
            return self._converse(questions) if questions else []
        answers = [self._kept(question) for question in questions]
        places: dict[str, list[int]] = {}
        for i, answer in enumerate(answers):
            if answer is None:
                places.setdefault(self._name(questions[i]), []).append(i)

        def ask(names: list[str]) -> None:
            own = [i for name in names for i in places[name]]
            for i in own:
                answers[i] = self._kept(questions[i])  # another process may have asked meanwhile
            unknown = [i for i in own if answers[i] is None]
            fresh = self._converse([questions[i] for i in unknown]) if unknown else []
            for i, value in zip(unknown, fresh, strict=True):
                answers[i] = (value,)

        self._store.once(list(places), ask)
        return [answer[0] for answer in answers if answer is not None]

    def check(self) -> None:
        """Ask for one word, to find an endpoint that is down or refuses.

        Raises as `ask`. The answer is not looked at, and nothing is kept.
        """
        messages = [{"role": "user", "content": "Answer with the word ok."}]
        self._converse([Question(messages, str)], keep=False)

    def _kept(self, question: Question[T]) -> tuple[T] | None:
        if self._store is None:
            return None
        held = self._store.get(self._name(question))
        if held is None and question.json_wanted:
            # Kept when 1024 was the default: JSON that was read was not cut, so it serves still.
            held = self._store.get(self._name(question, max_tokens=1024))
        if held is None:
            return None
        try:
            value = question.read(held.decode())
        except ValueError:
            return None  # kept by a version that wanted another form: asked again
        self._count(cached=1)
        return (value,)

    def _converse(self, questions: Sequence[Question[T]], *, keep: bool = True) -> list[T]:
        """Asks in an event loop of a thread of its own: the caller may be in a loop already."""
        from anyio.from_thread import start_blocking_portal

        with start_blocking_portal() as portal:
            return portal.call(self._all, questions, keep)

    async def _all(self, questions: Sequence[Question[T]], keep: bool) -> list[T]:
        # the openai package takes most of a second to import: only where an endpoint is asked
        from anyio import CapacityLimiter, create_task_group

        from rrgclinical.chat.transport import Endpoint

        limiter = CapacityLimiter(self.settings.concurrency)
        answers: dict[int, T] = {}

        async def one(place: int, question: Question[T]) -> None:
            async with limiter:
                text, answers[place] = await self._one(endpoint, question)
            if keep and self._store is not None:
                self._store.put(self._name(question), text.encode())

        endpoint = Endpoint(self.settings, self._record)
        try:
            async with endpoint, create_task_group() as group:
                for place, question in enumerate(questions):
                    group.start_soon(one, place, question)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [answers[place] for place in range(len(questions))]

    async def _one(self, endpoint: Endpoint, question: Question[T]) -> tuple[str, T]:
        """The answer and what is read in it; in another form it is asked for once more."""
        text = await self._send(endpoint, question.messages, question.json_wanted)
        try:
            return text, question.read(text)
        except ValueError as error:
            reason = error
        self._count(repairs=1)
        again = [
            *question.messages,
            {"role": "assistant", "content": text},
            {
                "role": "user",
                "content": f"That answer cannot be used: {reason}. Give the whole answer again, "
                "in the form asked for and with nothing around it.",
            },
        ]
        second = await self._send(endpoint, again, question.json_wanted)
        try:
            return second, question.read(second)
        except ValueError as still:
            raise UserError(
                f"{self.settings.shown}: {self.settings.model} answered twice in a form that "
                f"cannot be used ({still}): {second[:120]!r}; use another model, or raise "
                "max_tokens"
            ) from still

    async def _send(self, endpoint: Endpoint, messages: list[Message], json_wanted: bool) -> str:
        self.before_request()
        return (await endpoint.post(self._body(messages, json_wanted))).text

    def _name(self, question: Question[Any], **other: Any) -> str:
        """The name that an answer is kept by: all that is asked, `other` in its place."""
        body = self._body(question.messages, question.json_wanted) | other
        return json.dumps(body, sort_keys=True)

    def _body(self, messages: list[Message], json_wanted: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.settings.model,
            "messages": messages,
            "temperature": 0.0,
            "max_tokens": self.settings.max_tokens,
        }
        if json_wanted and self.settings.json_mode:
            body["response_format"] = {"type": "json_object"}
        return body

    def _record(
        self, number: int, seconds: float, answer: Answer | None, failure: str | None
    ) -> None:
        tokens = (answer.prompt_tokens, answer.completion_tokens) if answer else (0, 0)
        prices = (self.settings.input_price, self.settings.output_price)
        cost = sum(n * price for n, price in zip(tokens, prices, strict=True)) / 1e6
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "cost": cost}
        self._count(requests=1, retries=int(number > 1), seconds=seconds, **usage)
        if self._log is not None:
            about = {"time": time.time(), "model": self.settings.model, "try": number}
            row = {**about, "seconds": round(seconds, 4), **usage, "failure": failure}
            with self._lock, self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _count(self, **more: float) -> None:
        with self._lock:
            for name, value in more.items():
                setattr(self.usage, name, getattr(self.usage, name) + value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
