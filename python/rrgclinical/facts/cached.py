"""Facts read once per text, and the reader that a recipe's options describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrgclinical.cached import CAPACITY, Cached
from rrgclinical.chat import Chat, ChatSettings, Usage
from rrgclinical.common.arguments import check_options, check_reports
from rrgclinical.facts.endpoint import EndpointFacts
from rrgclinical.facts.reading import FactReader, FactReading
from rrgclinical.facts.rules import RulesFacts


class CachedFacts:
    """A fact reader that reads each distinct text once; see `rrgclinical.cached.Cached`.

    On disk it keeps nothing: the endpoint's answers are kept there by `Chat`.
    """

    def __init__(self, reader: FactReader, *, capacity: int = CAPACITY) -> None:
        self.reader = reader
        self.results: Cached[FactReading] = Cached(reader.read, capacity=capacity)

    @property
    def chat(self) -> Chat | None:
        """The language model that is asked; None without an endpoint."""
        return self.reader.chat if isinstance(self.reader, EndpointFacts) else None

    @property
    def usage(self) -> Usage | None:
        """Requests, tokens and cost so far; None without an endpoint."""
        return None if self.chat is None else self.chat.usage

    def read(self, reports: Sequence[str]) -> list[FactReading]:
        """One reading per report."""
        return self.results(check_reports(reports))


def build_facts(
    options: Mapping[str, Any], *, cache: str | Path | None = None, capacity: int = CAPACITY
) -> CachedFacts:
    """FactS by the options of `ChatSettings`, or by rules where there are none.

    UserError for an option that `ChatSettings` does not take, or an endpoint that does not answer.
    """
    if not options:
        return CachedFacts(RulesFacts(), capacity=capacity)
    settings = {"cache": cache, **options}
    check_options("facts", ChatSettings, settings)
    chat = Chat(ChatSettings(**settings))
    chat.check()
    return CachedFacts(EndpointFacts(chat), capacity=capacity)
