"""Judge pairs of a report and its reference by a language model and a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from rrgclinical.chat.client import Chat, Message, Question, Unreadable, Usage
from rrgclinical.chat.settings import ChatSettings
from rrgclinical.common.arguments import check_options, check_pairs
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole_text

J = TypeVar("J")


class PairJudge(ABC, Generic[J]):
    """Judges each distinct pair once, with the model behind an endpoint.

    name: of the reward term. model: what to ask, for messages. prompt: the packaged template.
    defaults: settings of the endpoint that a recipe may change.
    """

    name: ClassVar[str]
    model: ClassVar[str]
    prompt: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, chat: Chat, prompt: str | Path | None = None) -> None:
        """prompt: file with a template that holds {reference} and {candidate}; ours if None."""
        self.chat = chat
        self._template = self.prompt if prompt is None else read_template(self.name, prompt)

    @classmethod
    def build(cls, options: Mapping[str, Any], cache: str | Path | None = None) -> Self:
        """Build the judge by the options of `ChatSettings`, and `prompt`.

        UserError where no endpoint is named or it does not answer.
        """
        if not options.get("endpoint"):
            raise UserError(
                f"the term {cls.name} needs a language model: set reward.options.{cls.name}."
                f"endpoint and .model ({cls.model} behind any OpenAI-compatible server)"
            )
        settings = {"cache": cache, **cls.defaults, **options}
        prompt = settings.pop("prompt", None)
        check_options(cls.name, ChatSettings, settings)
        judge = cls(Chat(ChatSettings(**settings)), prompt)
        judge.chat.check()
        return judge

    @abstractmethod
    def question(self, messages: list[Message]) -> Question[J]:
        """Say how the answer to a filled prompt is read."""

    @abstractmethod
    def unread(self, why: str) -> J:
        """Make the judgement of a pair whose answer could not be read."""

    @property
    def usage(self) -> Usage:
        return self.chat.usage

    def judge(self, reports: Sequence[str], references: Sequence[str]) -> list[J]:
        """One judgement per pair; raises as `Chat.ask`. TypeError names a report not a str."""
        pairs = list(zip(*check_pairs(reports, references), strict=True))
        distinct = list(dict.fromkeys(pairs))
        judged = [
            self.unread(str(one)) if isinstance(one, Unreadable) else one
            for one in self.chat.ask([self._question(*pair) for pair in distinct])
        ]
        answers = dict(zip(distinct, judged, strict=True))
        return [answers[pair] for pair in pairs]

    def score(self, reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """float64 `[R]`; NaN where an answer could not be read."""
        judged: list[Any] = self.judge(reports, references)
        return np.array([judgement.score for judgement in judged], dtype=np.float64)

    def _question(self, report: str, reference: str) -> Question[J]:
        # either may hold braces
        text = self._template.replace("{candidate}", "\0").replace("{reference}", reference)
        return self.question([{"role": "user", "content": text.replace("\0", report)}])


def read_template(judge: str, file: str | Path) -> str:
    """Read a prompt with one {reference} and one {candidate}; UserError names the judge."""
    path = Path(file).expanduser()
    try:
        text = read_whole_text(path, "utf-8-sig")
    except OSError as error:
        raise UserError(f"{judge}: prompt {path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{judge}: prompt {path} is not UTF-8 (byte {error.start}); save it as UTF-8"
        ) from error
    if "\0" in text:
        raise UserError(f"{judge}: prompt {path} holds a NUL; save it as UTF-8 text")
    for slot in ("{reference}", "{candidate}"):
        if text.count(slot) != 1:
            raise UserError(
                f"{judge}: prompt {path} holds {slot} {text.count(slot)} times; want one"
            )
    return text
