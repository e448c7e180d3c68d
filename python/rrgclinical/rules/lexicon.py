"""All tables in one compiled phrase table, and the text it is matched against."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from rrgclinical.rules.anatomy import PREDICATES, SUBJECTS
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import ATTRIBUTES, CUES, PUNCTUATION, SEVERITIES, SIDES, ZONES, Cue
from rrgclinical.rules.parts import ALIASES
from rrgclinical.rules.trie import PhraseTable, Spelling, expand, phrases_of, plain_spelling

VALUES: dict[Cue, tuple[str, ...]] = {Cue.SIDE: SIDES, Cue.ZONE: ZONES, Cue.SEVERITY: SEVERITIES}

_CACHE_WORDS = 1 << 16

# Tokenizers put spaces around the hyphen of "right - sided" too, so a spaced hyphen parts
# statements only before a word that can open one.
_MARK = (
    r"(?<!\w)[-\u2013\u2212]ve\b|-free\b|[,;:()/?|\u2014]|(?<!-)--(?!-)"
    r"|(?<=\s)(?:[\u2013\u2022*])(?=\s)|(?<=\s)-(?=\s+(?:no|not|none|nil|zero|mild|small"
    r"|moderate|large|stable|unchanged|likely|new|there)\b)"
)
_TOKEN = re.compile(rf"[^\W_]+(?:(?<=\br)/o\b)?|{_MARK}")
_ADVERB = "surely"
"""What an adverb of no table is read as."""
# "isn't" is "is" and "not"
_NOT = ("n't", "n\u2019t")
_TOKEN_OR_NOT = re.compile(r"n['\u2019]t\b|r/o\b|[^\W_]+?(?=n['\u2019]t\b)|[^\W_]+|" + _MARK)
_LAST_WORD = re.compile(r"([^\W_]+)\s+\Z")
_LONGEST = 40


class Role(NamedTuple):
    """Role of a phrase: cue, and concept id, subject, predicate or attribute value.

    attributes: (cue, value) pairs that the phrase's own words carry ("bibasilar density").
    """

    cue: Cue
    value: Any = None
    attributes: tuple[tuple[Cue, int], ...] = ()


class Event(NamedTuple):
    """A phrase found in a sentence: its roles, their cues, token range and character range."""

    roles: tuple[Role, ...]
    cues: frozenset[Cue]
    first: int
    last: int
    start: int
    end: int


@cache
def phrase_table() -> PhraseTable:
    """The compiled table of every finding, structure, predicate, cue and attribute."""
    table = PhraseTable()
    words = _attribute_words()
    for axis, value, phrase in _attribute_phrases():
        table.add(phrase, Role(axis, value))
    for identity, concept in enumerate(CONCEPTS):
        for phrase in concept.phrases:
            for reading in expand(phrase):
                table.add(" ".join(reading), Role(Cue.FINDING, identity, _carried(reading, words)))
    for predicate, text in PREDICATES.items():
        for phrase in phrases_of(text):
            for reading in expand(phrase):
                graded = tuple(p for p in _carried(reading, words) if p[0] == Cue.SEVERITY)
                table.add(" ".join(reading), Role(Cue.PREDICATE, predicate, graded))
    for subject in SUBJECTS:
        for phrase in subject.phrases:
            table.add(phrase, Role(Cue.SUBJECT, subject))
    for cue, text in CUES.items():
        for phrase in phrases_of(text):
            table.add(phrase, Role(cue))
    for mark, cues in PUNCTUATION.items():
        for cue in cues:
            table.give((mark,), Role(cue))
    table.compile(_with_cues, ALIASES)
    table.lemma.update(dict.fromkeys(_NOT, table.lemma["not"]), ca=table.lemma["can"])
    return table


def find_events(sentence: str) -> list[Event]:
    """The phrases of `sentence` in order, and its end."""
    table = phrase_table()
    lowered = _lower(sentence)
    contracted = any(mark in lowered for mark in _NOT)
    matches = list((_TOKEN_OR_NOT if contracted else _TOKEN).finditer(lowered))
    lemma = table.lemma
    words = [lemma.get(word := match.group()) or _meant(word) for match in matches]
    events = [
        Event(roles, cues, first, last, matches[first].start(), matches[last - 1].end())
        for (roles, cues), first, last in table.find(words)
    ]
    count, length = len(words), len(sentence)
    events.append(Event(*_AT_END, count, count, length, length))
    return events


def is_behind_unknown(sentence: str, place: int) -> bool:
    """True where the word before is of no table, perhaps a misspelt denial."""
    before = _LAST_WORD.search(sentence, max(0, place - _LONGEST), place)
    if before is None:
        return False
    word = _lower(before[1])
    return word not in phrase_table().lemma and _meant(word) is None


@cache  # phrases of one meaning share it
def _with_cues(roles: tuple[Role, ...]) -> tuple[tuple[Role, ...], frozenset[Cue]]:
    return roles, frozenset(role.cue for role in roles)


_AT_END = _with_cues((Role(Cue.END),))


@cache
def _spelling() -> Spelling:
    return Spelling(phrase_table().lemma)


@lru_cache(maxsize=_CACHE_WORDS)
def _misspelt(word: str) -> str | None:
    plain = plain_spelling(word)
    return phrase_table().spelt.get(plain) or _spelling().lemma(plain)


def _meant(word: str) -> str | None:
    """The lemma of a word that the tables do not hold as it stands."""
    return _misspelt(word) or (_ADVERB if word.endswith("ly") else None)


def _attribute_phrases() -> Iterator[tuple[Cue, int, str]]:
    for axis, values in ATTRIBUTES.items():
        for value, text in values.items():
            for phrase in phrases_of(text):
                yield axis, VALUES[axis].index(value), phrase


def _attribute_words() -> dict[str, tuple[tuple[Cue, int], ...]]:
    """The attributes that a single word carries wherever it stands."""
    words: dict[str, tuple[tuple[Cue, int], ...]] = {}
    for axis, value, phrase in _attribute_phrases():
        for reading in expand(phrase):
            if len(reading) == 1:
                words[reading[0]] = (*words.get(reading[0], ()), (axis, value))
    return words


def _carried(
    reading: Iterable[str], words: dict[str, tuple[tuple[Cue, int], ...]]
) -> tuple[tuple[Cue, int], ...]:
    """What the words of a phrase say of side, zone and severity."""
    return tuple(pair for word in reading for pair in words.get(word, ()))


def _lower(text: str) -> str:
    """Lower case of the same length: a character whose lower case is longer stays as it is."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)
