"""Many conversations at once: bounded concurrency, retries, a cache, a record of the cost."""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rrgtrain.clinical.chat.answers import parse_json
from rrgtrain.clinical.chat.transport import Answer, PassingFailure, post_chat
from rrgtrain.clinical.store import Store
from rrgtrain.errors import UserError

T = TypeVar("T")
Message = dict[str, str]

_LONGEST_WAIT = 60.0


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
    """What the endpoint has been asked since construction. `cost` is in the currency of the
    prices; `seconds` adds up the latency of every request, however many ran at once.
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
    """A language model that is asked in conversations and answers each with a text or JSON."""

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        key_variable: str = "OPENAI_API_KEY",
        concurrency: int = 16,
        timeout: float = 60.0,
        tries: int = 5,
        backoff: float = 1.0,
        max_tokens: int = 1024,
        json_mode: bool = True,
        input_price: float = 0.0,
        output_price: float = 0.0,
        log: str | Path | None = None,
        cache: str | Path | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            endpoint: address up to and with the version, as in http://localhost:8000/v1.
            model: the name that the endpoint knows it by.
            key_variable: environment variable with the key; none is sent where it is not set.
            concurrency: requests in flight at most.
            timeout: seconds for one whole answer.
            tries: requests for one answer at most; the wait between them doubles from `backoff`
                seconds, or is what the server asks for.
            max_tokens: longest answer.
            json_mode: ask the server for JSON where JSON is wanted; off for servers that refuse it.
            input_price, output_price: per million tokens.
            log: file to which one line of JSON per request is appended.
            cache: directory where answers are kept, by what was asked of which model.

        Raises:
            UserError: an address or number that cannot be.
        """
        if not endpoint.startswith(("http://", "https://")):
            raise UserError(f"endpoint {endpoint!r}; wanted an address such as http://host:8000/v1")
        for name, value in (("concurrency", concurrency), ("timeout", timeout), ("tries", tries)):
            if not value > 0:
                raise UserError(f"endpoint {endpoint}: {name} is {value}; wanted more than 0")
        self.endpoint, self.model = endpoint.rstrip("/"), model
        self.usage = Usage()
        self._key_variable, self._concurrency = key_variable, concurrency
        self._timeout, self._tries, self._backoff = timeout, tries, backoff
        self._max_tokens, self._json_mode = max_tokens, json_mode
        self._prices = (input_price, output_price)
        self._log = Path(log).expanduser() if log is not None else None
        self._lock = threading.Lock()
        self._jitter = random.Random(0)
        self._store = Store(cache, f"chat-{_digest(model)}") if cache is not None else None

    def ask(self, questions: Sequence[Question[T]]) -> list[T]:
        """What each question reads in its answer, in order.

        The model is told of an answer in another form and asked once more. The first question that
        fails stops the others.

        Raises:
            UserError: an endpoint that fails `tries` times, or refuses, or answers in the wrong
                form twice.
        """
        stop = threading.Event()
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="chat") as pool:
            futures = [pool.submit(self._one, question, stop) for question in questions]
            wait(futures, return_when=FIRST_EXCEPTION)
            stop.set()
            for future in futures:
                future.cancel()
            failed = [f.exception() for f in futures if f.done() and not f.cancelled()]
        for error in failed:
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def check(self) -> None:
        """Asks for one word, so that an endpoint that is down, or refuses, is known beforehand.

        Raises as `ask`. The answer is not looked at, and nothing is kept.
        """
        body = self._body([{"role": "user", "content": "Answer with the word ok."}], False)
        self._request(body, threading.Event())

    def _one(self, question: Question[T], stop: threading.Event) -> T:
        body = self._body(question.messages, question.json_wanted)
        key = json.dumps(body, sort_keys=True)
        held = self._store.get(key) if self._store is not None else None
        if held is not None:
            try:
                value = question.read(held.decode())
            except ValueError:
                pass  # kept by a version that wanted another form: asked again below
            else:
                self._count(cached=1)
                return value
        text = self._request(body, stop)
        try:
            value = question.read(text)
        except ValueError as error:
            text, value = self._repair(question, text, error, stop)
        if self._store is not None:
            self._store.put(key, text.encode())
        return value

    def _repair(
        self, question: Question[T], text: str, error: ValueError, stop: threading.Event
    ) -> tuple[str, T]:
        self._count(repairs=1)
        again = [
            *question.messages,
            {"role": "assistant", "content": text},
            {
                "role": "user",
                "content": f"That answer cannot be used: {error}. Give the whole answer again, "
                "in the form asked for and with nothing around it.",
            },
        ]
        second = self._request(self._body(again, question.json_wanted), stop)
        try:
            return second, question.read(second)
        except ValueError as still:
            raise UserError(
                f"{self.endpoint}: {self.model} answered twice in a form that cannot be used "
                f"({still}): {second[:120]!r}; use another model, or raise max_tokens"
            ) from still

    def _body(self, messages: list[Message], json_wanted: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "temperature": 0.0,
            "max_tokens": self._max_tokens,
        }
        if json_wanted and self._json_mode:
            body["response_format"] = {"type": "json_object"}
        return body

    def _request(self, body: dict[str, Any], stop: threading.Event) -> str:
        key = os.environ.get(self._key_variable)
        pause = self._backoff
        for attempt in range(1, self._tries + 1):
            began = time.perf_counter()
            try:
                answer = post_chat(self.endpoint, body, key, self._timeout)
            except PassingFailure as failure:
                self._record(began, attempt, failure=str(failure))
                if attempt == self._tries:
                    raise UserError(
                        f"{self.endpoint} failed {self._tries} times, last with {failure}; "
                        "is it up, and is the address right?"
                    ) from failure
                asked = failure.wait if failure.wait is not None else pause * self._spread()
                pause *= 2
                if stop.wait(min(asked, _LONGEST_WAIT)):
                    raise UserError(f"{self.endpoint}: stopped after another failure") from failure
            else:
                self._record(began, attempt, answer)
                return answer.text
        raise AssertionError("the last try returns or raises")

    def _spread(self) -> float:
        """Between 1/2 and 1, so that clients that failed together do not return together."""
        with self._lock:
            return self._jitter.uniform(0.5, 1.0)

    def _record(
        self, began: float, attempt: int, answer: Answer | None = None, failure: str | None = None
    ) -> None:
        seconds = time.perf_counter() - began
        tokens = (answer.prompt_tokens, answer.completion_tokens) if answer else (0, 0)
        cost = sum(n * price for n, price in zip(tokens, self._prices, strict=True)) / 1e6
        self._count(
            requests=1,
            retries=int(attempt > 1),
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            cost=cost,
            seconds=seconds,
        )
        if self._log is not None:
            row = {
                "time": time.time(),
                "model": self.model,
                "try": attempt,
                "seconds": round(seconds, 4),
                "prompt_tokens": tokens[0],
                "completion_tokens": tokens[1],
                "cost": cost,
                "failure": failure,
            }
            with self._lock, self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _count(self, **more: float) -> None:
        with self._lock:
            for name, value in more.items():
                setattr(self.usage, name, getattr(self.usage, name) + value)

    def statistics(self) -> dict[str, float]:
        """`usage` as numbers for a log."""
        with self._lock:
            return {name: float(value) for name, value in asdict(self.usage).items()}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
