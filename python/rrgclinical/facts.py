"""Read facts and verdicts, by a language model or by rules; score them (OraPO)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rrgclinical.cached import CAPACITY, Cached
from rrgclinical.chat import Chat, ChatSettings, Unreadable, Usage, json_question
from rrgclinical.common.arguments import check_options, check_reports
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, SUPPORT_DEVICES, ClassId, to_binary
from rrgclinical.rules import plain_lines, says_normal, split_sentences
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS

# The ids of CheXbert, so that verdicts read as labels.
NOT_MENTIONED, ENTAILED, DENIED = int(ClassId.BLANK), int(ClassId.POSITIVE), int(ClassId.NEGATIVE)
VERDICTS: tuple[str, ...] = ("not mentioned", "entailed", "denied")


@dataclass(frozen=True)
class FactReading:
    """One report.

    facts: its atomic statements, in order. verdicts: of the 14 labels, each NOT_MENTIONED,
    ENTAILED or DENIED. evidence: for each label the index of the fact that decides, or None.
    unreadable: why an endpoint's answer could not be read; such a reading has no facts or score.
    """

    facts: tuple[str, ...]
    verdicts: tuple[int, ...]
    evidence: tuple[int | None, ...]
    unreadable: str = ""

    @classmethod
    def of(
        cls,
        facts: Sequence[str],
        verdicts: Sequence[int],
        evidence: Sequence[int | None],
        *,
        well: bool = False,
    ) -> FactReading:
        """A reading from the verdicts on the first 13 labels; No Finding follows from them.

        It is entailed when nothing but Support Devices is and the facts say so: one is denied, or
        `well`, a structure is called normal or a phrase sums up. Else it is not mentioned.
        """
        disease = [v for c, v in enumerate(verdicts) if c != SUPPORT_DEVICES]
        clear = (well or DENIED in verdicts) and ENTAILED not in disease
        last = ENTAILED if clear else NOT_MENTIONED
        return cls(tuple(facts), (*verdicts, last), (*evidence, None))

    @classmethod
    def unread(cls, why: str) -> FactReading:
        """Make the reading of a report whose answer could not be read."""
        nothing = (NOT_MENTIONED,) * len(OBSERVATIONS)
        return cls((), nothing, (None,) * len(OBSERVATIONS), why)

    def as_note(self) -> dict[str, Any]:
        """Facts, and label -> verdict and deciding fact where there is one, for the record."""
        if self.unreadable:
            return {"unreadable": self.unreadable}
        labels = {}
        for name, verdict, fact in zip(OBSERVATIONS, self.verdicts, self.evidence, strict=True):
            if verdict != NOT_MENTIONED:
                quoted = None if fact is None else self.facts[fact]
                labels[name] = {"verdict": VERDICTS[verdict], "fact": quoted}
        return {"facts": list(self.facts), "labels": labels}


def fact_scores(
    readings: Sequence[FactReading], truth: np.ndarray, *, beta: float = 2.0
) -> np.ndarray:
    """float64 `[R]`: F_beta of the entailed labels against class ids `truth` [R, 14].

    Truth is positive where positive or uncertain. Entailed and not true is a false positive; true
    and not entailed a false negative; true and denied a false positive besides; denying what is
    not true costs nothing. 0/0 is 0; NaN where an answer could not be read.
    beta above 1 favours recall (OraPO leaves it open).
    """
    positive = to_binary(truth).astype(bool)
    verdicts = np.array([r.verdicts for r in readings], dtype=np.int64).reshape(positive.shape)
    entailed, denied = verdicts == ENTAILED, verdicts == DENIED
    hit = (entailed & positive).sum(1)
    spurious = (entailed & ~positive).sum(1) + (denied & positive).sum(1)
    missed = (~entailed & positive).sum(1)
    squared = beta * beta
    whole = (1 + squared) * hit + squared * missed + spurious
    scores = np.divide((1 + squared) * hit, whole, out=np.zeros(len(hit)), where=hit > 0)
    return np.where([bool(r.unreadable) for r in readings], np.nan, scores)


LABELS: tuple[str, ...] = OBSERVATIONS[:NO_FINDING]
"""The 13 labels that facts are held against; No Finding follows from them."""


_EXTRACT = (
    "Split the findings of this chest X-ray report into atomic facts: short sentences that each "
    "state one thing, keep its negation, certainty, side and severity, and can be read alone. "
    "Leave out technique, comparison dates and advice. "
    'Answer with JSON only: {"facts": ["...", "..."]}; an empty list where nothing is stated.'
)
_ENTAIL = (
    "Below are numbered facts of a chest X-ray report. For each label decide whether the facts "
    'entail it (stated or suspected: "entailed"), deny it ("denied"), or say nothing of it '
    '("not mentioned"), and give the number of the fact that decides, or null where nothing is '
    "said. Use the facts alone; do not infer one label from another. "
    'Answer with JSON only: {"verdicts": {"<label>": {"verdict": "...", "fact": 0}}}, '
    f"with each of these labels once: {', '.join(LABELS)}."
)


class EndpointFacts:
    """FactS by a language model that answers in JSON (OraPO used GPT-4.1)."""

    def __init__(self, chat: Chat) -> None:
        """`chat` is asked twice per report, and once where it states nothing."""
        self.chat = chat

    def read(self, reports: Sequence[str]) -> list[FactReading]:
        texts = check_reports(reports)
        written = list(dict.fromkeys(text for text in texts if text.strip()))
        listed = self.chat.ask([json_question(_messages(_EXTRACT, t), _facts) for t in written])
        stated = list(
            dict.fromkeys(facts for facts in listed if facts and not isinstance(facts, Unreadable))
        )
        lines = ["\n".join(f"{k}. {fact}" for k, fact in enumerate(facts)) for facts in stated]
        judged = self.chat.ask(
            [
                json_question(_messages(_ENTAIL, numbered), partial(_verdicts, len(facts)))
                for numbered, facts in zip(lines, stated, strict=True)
            ]
        )
        facts_of = dict(zip(written, listed, strict=True))
        judgement = dict(zip(stated, judged, strict=True))
        return [_reading(facts_of.get(text, ()), judgement) for text in texts]


def _reading(
    facts: tuple[str, ...] | Unreadable, judgement: Mapping[tuple[str, ...], Any]
) -> FactReading:
    """Join a report's facts and what was judged of them."""
    if isinstance(facts, Unreadable):
        return FactReading.unread(str(facts))
    verdicts = judgement.get(facts, ([NOT_MENTIONED] * len(LABELS), [None] * len(LABELS)))
    if isinstance(verdicts, Unreadable):
        return FactReading.unread(str(verdicts))
    return FactReading.of(facts, *verdicts, well=any(map(says_normal, facts)))


def _messages(instruction: str, text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": instruction}, {"role": "user", "content": text}]


def _facts(value: Any) -> tuple[str, ...]:
    facts = value.get("facts") if isinstance(value, dict) else None
    if not isinstance(facts, list) or not all(isinstance(f, str) and f.strip() for f in facts):
        raise ValueError('wanted {"facts": [...]} with texts that are not empty')
    return tuple(" ".join(fact.split()) for fact in facts)


def _verdicts(count: int, value: Any) -> tuple[list[int], list[int | None]]:
    """Verdicts and deciding facts of the 13 labels, from the answer on `count` facts."""
    by_label = value.get("verdicts") if isinstance(value, dict) else None
    if not isinstance(by_label, dict):
        raise ValueError('wanted {"verdicts": {...}}')
    if wrong := sorted(set(by_label) ^ set(LABELS)):
        raise ValueError(f"wanted each of the {len(LABELS)} labels and no other, see {wrong[0]}")
    verdicts: list[int] = []
    evidence: list[int | None] = []
    for label in LABELS:
        entry = by_label[label] if isinstance(by_label[label], dict) else {}
        verdict, fact = entry.get("verdict"), entry.get("fact")
        if verdict not in VERDICTS:
            raise ValueError(f"the verdict on {label} is {verdict!r}; wanted {', '.join(VERDICTS)}")
        if fact is not None and (type(fact) is not int or not 0 <= fact < count):
            raise ValueError(f"the fact of {label} is {fact!r}; wanted 0 to {count - 1}, or null")
        verdicts.append(VERDICTS.index(verdict))
        evidence.append(fact if verdict != VERDICTS[NOT_MENTIONED] else None)
    return verdicts, evidence


class CachedFacts:
    """A fact reader that reads each distinct text once; see `rrgclinical.cached.Cached`.

    On disk it keeps nothing: the endpoint's answers are kept there by `Chat`.
    """

    def __init__(self, reader: EndpointFacts | RulesFacts, *, capacity: int = CAPACITY) -> None:
        self.reader = reader
        self.results: Cached[FactReading] = Cached(reader.read, capacity=capacity)

    @property
    def chat(self) -> Chat | None:
        return self.reader.chat if isinstance(self.reader, EndpointFacts) else None

    @property
    def usage(self) -> Usage | None:
        """Requests, tokens and cost so far; None without an endpoint."""
        return None if self.chat is None else self.chat.usage

    def read(self, reports: Sequence[str]) -> list[FactReading]:
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


# Where one statement ends and the next begins. "and" alone joins findings under one negation.
_BORDER = re.compile(
    r"\s*(?:;|,?\s+\b(?:but|however|although|whereas|while)\b,?|,\s+and\b)\s*", re.I
)
_OF_STATUS = {
    ClassId.POSITIVE: ENTAILED,
    ClassId.UNCERTAIN: ENTAILED,
    ClassId.NEGATIVE: DENIED,
    ClassId.BLANK: NOT_MENTIONED,
}


class RulesFacts:
    """Each clause of a sentence is a fact; verdicts are those of the rules labeller.

    A finding stated or suspected is entailed, one denied is denied, and entailed wins where a
    report says both.
    """

    def read(self, reports: Sequence[str]) -> list[FactReading]:
        return [_read(text) for text in check_reports(reports)]


def clauses(sentence: str) -> list[tuple[int, int]]:
    """(start, end) of the clauses of a sentence, in order, without the words between them."""
    spans, start = [], 0
    for border in _BORDER.finditer(sentence):
        spans.append((start, border.start()))
        start = border.end()
    spans.append((start, len(sentence)))
    return [(a, b) for a, b in spans if any(map(str.isalnum, sentence[a:b]))]


def _read(text: str) -> FactReading:
    facts: list[str] = []
    verdicts = [NOT_MENTIONED] * len(LABELS)
    evidence: list[int | None] = [None] * len(LABELS)
    text = plain_lines(text)
    sentences = [text[start:end] for start, end in split_sentences(text)]
    for sentence in sentences:
        first, spans = len(facts), clauses(sentence)
        facts.extend(" ".join(sentence[a:b].split()).strip(" ,.") for a, b in spans)
        for mention in read_sentence(sentence):
            concept = CONCEPTS[mention.concept]
            verdict = _OF_STATUS[ClassId(mention.status)]
            before = sum(a <= mention.start for a, _ in spans)
            fact = first + max(before, 1) - 1
            for column in (*concept.states, *concept.suggests):
                held = verdicts[column]
                if held == NOT_MENTIONED or (held == DENIED and verdict == ENTAILED):
                    verdicts[column] = verdict
                    evidence[column] = None if verdict == NOT_MENTIONED else fact
    return FactReading.of(facts, verdicts, evidence, well=any(map(says_normal, sentences)))
