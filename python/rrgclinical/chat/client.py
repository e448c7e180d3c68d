"""Many conversations at once: bounded concurrency, retries, a cache, a record of the cost.

An answer is what stands behind the model's reasoning.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from rrgclinical.chat.settings import ChatSettings
from rrgclinical.common import json_reader
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


class Unreadable(UserError):
    """Raised where a model answers twice in a form that cannot be read."""


def _read(question: Question[T], answer: Answer) -> tuple[str, T]:
    """Return the answer behind the reasoning, and what is read in it; else ValueError."""
    if answer.fault:
        raise ValueError(answer.fault)
    text = after_reasoning(answer.text)
    return text, question.read(text)


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
    unreadable: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


class Chat:
    """A language model behind an endpoint, asked in conversations."""

    def __init__(self, settings: ChatSettings) -> None:
        self.settings = settings
        self.usage = Usage()
        # `ask` gives an `Unreadable` in place of an answer, and goes on
        self.leave_out = False
        # Called before every request; an error that it raises stops `ask`, as a budget does.
        self.before_request: Callable[[], None] = lambda: None
        self._log = Path(settings.log).expanduser() if settings.log is not None else None
        self._lock = threading.Lock()
        self._store: Store | None = None
        if settings.cache is not None:
            digest = hashlib.sha256(settings.model.encode()).hexdigest()[:16]
            self._store = Store(settings.cache, f"chat-{digest}")

    def ask(self, questions: Sequence[Question[T]]) -> list[T | Unreadable]:
        """Ask all questions; return what each reads in its answer, in order.

        With a cache, processes of one node that have the same question ask it once.
        The model is told of an answer in another form and asked once more. The first question that
        fails stops the others.

        Raises:
            UserError: an endpoint that fails `tries` times, or refuses, or answers in the wrong
                form twice. With `leave_out` that one is returned in the answer's place.
        """
        if self._store is None:
            return self._converse(questions) if questions else []
        held: list[tuple[T] | None] = [self._kept(question) for question in questions]
        answers: list[tuple[T | Unreadable] | None] = [*held]
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
        if held is None:
            return None
        try:
            value = question.read(after_reasoning(held.decode()))
        except ValueError:
            return None  # kept by a version that wanted another form: asked again
        self._count(cached=1)
        return (value,)

    def _converse(
        self, questions: Sequence[Question[T]], *, keep: bool = True
    ) -> list[T | Unreadable]:
        """Ask in an event loop of a thread of its own: the caller may be in a loop already."""
        from anyio.from_thread import start_blocking_portal

        with start_blocking_portal() as portal:
            return portal.call(self._all, questions, keep)

    async def _all(self, questions: Sequence[Question[T]], keep: bool) -> list[T | Unreadable]:
        # the openai package takes most of a second to import: only where an endpoint is asked
        from anyio import CapacityLimiter, create_task_group

        from rrgclinical.chat.transport import Endpoint

        limiter = CapacityLimiter(self.settings.concurrency)
        answers: dict[int, T | Unreadable] = {}

        async def one(place: int, question: Question[T]) -> None:
            async with limiter:
                try:
                    text, answers[place] = await self._one(endpoint, question)
                except Unreadable as error:
                    if not self.leave_out:
                        raise
                    self._count(unreadable=1)
                    answers[place] = error
                    return
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
        """Give the answer and what is read in it; in another form it is asked for once more."""
        answer = await self._send(endpoint, question.messages, question.json_wanted)
        try:
            return _read(question, answer)
        except ValueError as error:
            reason = error
        self._count(repairs=1)
        request = (
            f"That answer cannot be used: {reason}. Give the whole answer again, in the form asked "
            "for and with nothing around it."
        )
        again = [*question.messages, {"role": "user", "content": request}]
        if answer.text:
            again.insert(-1, {"role": "assistant", "content": answer.text})
        else:  # two turns of one role are refused by many templates
            last = again.pop(-2)
            again[-1] = {**last, "content": f"{last['content']}\n\n{request}"}
        second = await self._send(endpoint, again, question.json_wanted)
        try:
            return _read(question, second)
        except ValueError as still:
            raise Unreadable(
                f"{self.settings.shown}: {self.settings.model} answered twice in a form that "
                f"cannot be used ({still}): {second.text[:120]!r}; use another model, raise "
                f"max_tokens ({self.settings.max_tokens} now), or switch reasoning off by `request`"
            ) from still

    async def _send(self, endpoint: Endpoint, messages: list[Message], json_wanted: bool) -> Answer:
        self.before_request()
        return await endpoint.post(self._body(messages, json_wanted))

    def _name(self, question: Question[Any]) -> str:
        """The name that an answer is kept by: all that is asked."""
        return json.dumps(self._body(question.messages, question.json_wanted), sort_keys=True)

    def _body(self, messages: list[Message], json_wanted: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.settings.model,
            "messages": messages,
            "temperature": self.settings.temperature,
            self.settings.limit_name: self.settings.max_tokens,
            **self.settings.request,
        }
        if body["temperature"] is None:
            del body["temperature"]
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


_FENCE = re.compile(r"^[ \t]*```[a-z]*[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
# As models are served without a parser of reasoning: DeepSeek, Qwen, Granite; Magistral; Seed.
_NAMES = r"(?:think|thinking|thought|reasoning|seed:think)"
_OPENED = re.compile(rf"<{_NAMES}>|\[think\]", re.IGNORECASE)
_CLOSED = re.compile(rf"</{_NAMES}>|\[/think\]", re.IGNORECASE)


def after_reasoning(text: str) -> str:
    """Return what stands behind the last closed block of reasoning.

    A template may have opened the block, so that the text has its end alone. Raises ValueError for
    a block that never ends, behind which there is no answer.
    """
    end = max((block.end() for block in _CLOSED.finditer(text)), default=0)
    if _OPENED.search(text, end):
        raise ValueError("it holds reasoning alone, whose block never ends")
    return text[end:].strip() if end else text


def parse_json(text: str) -> Any:
    """Read the one JSON value in `text`.

    It is all of it, stands in a code fence, or behind a sentence. Raises ValueError where there are
    two, for a key given twice, NaN, or an unfinished value.
    """
    answer = text.strip()
    fenced = _FENCE.findall(answer)
    if len(fenced) == 1:
        answer = fenced[0]
    elif answer[:1] not in ("{", "["):
        # text around a value holds no brace of its own, or what is between them is no JSON
        first, last = answer.find("{"), answer.rfind("}")
        answer = answer[first : last + 1] if 0 <= first < last else answer
    return json_reader.parse(answer, pairs=json_reader.once, constant=_refuse)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
