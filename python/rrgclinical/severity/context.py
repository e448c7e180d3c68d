"""Weigh findings by the patient's age and by what the indication asks for.

The orders, written before the numbers (> is worth more):

    C1  without an age and an indication that the table knows = `severity`, to the bit
    C2  dropped, not asked for > dropped, asked for: the one question was not answered
    C3  invented, not asked for > invented, asked for: it is what will be treated
        (C2 and C3 are ties of a finding that weighs 1 already, as a large pneumothorax)
    C4  dropped at an age that expects it > dropped at one that does not
    C5  unchanged > dropped at an age that expects it: it is still a finding
    C6  an expected finding dropped > a critical one dropped, at every age
    C7  another denial dropped > the denial of what was asked dropped
    C8  the orders of `severity` hold in every context

A finding's weight, and that of a device in a wrong place, is multiplied by the factors of its age
groups and by one if it is asked for; graded, it is held at 1. So the formula of `judge` stays. Age
and question stand in the study's indication ("67-year-old man with cough"), the only place where
data sets here tell of an age; one that was taken out ("___ year old") is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

OLDEST = 120
_YEARS = r"\b(\d{1,3})[\s-]*(?:years?|yrs?|y)"
_PERSON = r"\b(?:m|f(?!/u)|(?:fe)?male|(?:gentle|wo)?m[ae]n|lady|boy|girl|child|patient|pt)\b"
_WITH = rf"(?:{_PERSON}|with\b|who\b|and\b)"
_THING = r"(?:fracture|injur|scar|infarct|implant|pacemaker|stent|graft|film|study|x-?ray)"
_AGE = re.compile(
    rf"{_YEARS}[\s./-]*(?:o|of\s+age)\b"
    rf"|{_YEARS}[\s-]*old\b(?!\s+(?:(?!{_WITH})\w+\s+){{0,2}}{_THING})"
    rf"|{_YEARS}[\s,./-]*{_PERSON}"
    rf"|(?:\A|\(|{_PERSON})[\s,:/]*{_YEARS}\b(?=\s*(?:\Z|[),.;:/]|{_WITH}))"
    r"|\b(0\d\d)y\b|\b(\d{1,3})[\s-]*(?:fe)?male\b"
    r"|\baged?\s*:?\s*(\d{1,3})\b(?!\s*-?(?:mo|w|d))",
    re.IGNORECASE,
)
"""Years of a person; not of a fracture, of coughing, since an operation, to a check; no months."""


def age_of(indication: str) -> int | None:
    """Read the first age in years; None for none, or above 120."""
    match = _AGE.search(indication)
    years = int(next(filter(None, match.groups()))) if match else None
    return None if years is None or years > OLDEST else years


@dataclass(frozen=True)
class Context:
    """The section `context` of a table: who expects what, and which words ask for it.

    ages: (from, to, factor, concepts), both years included. factor: of what is asked for by one of
    `asks`. words: the first that asks for each finding.
    """

    ages: tuple[tuple[float, float, float, tuple[int, ...]], ...]
    factor: float
    asks: Mapping[int, re.Pattern[str]]
    words: tuple[str, ...]

    def factors(self, indication: str) -> tuple[tuple[int, float], ...]:
        """Give the factors that are not 1, by concept in ascending order."""
        age, factors = age_of(indication), dict[int, float]()
        due = [(of, x) for low, high, x, of in self.ages if age is not None and low <= age <= high]
        due += [((c,), self.factor) for c, words in self.asks.items() if words.search(indication)]
        for concepts, factor in due:
            for concept in concepts:
                factors[concept] = factors.get(concept, 1.0) * factor
        return tuple(sorted((c, x) for c, x in factors.items() if x != 1.0))

    def examples(self) -> dict[str, str]:
        """Name indications of a young, an old and a fully questioned patient."""
        every = f"{', '.join(self.words)}?"
        return {"at 30": "30-year-old", "at 80": "80-year-old", "all asked": every}


def words_pattern(words: list[str]) -> re.Pattern[str]:
    """Compile a pattern that meets any of the words, whatever their case and blanks."""
    either = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<!\w)(?:{either or '(?!)'})(?!\w)", re.IGNORECASE)
