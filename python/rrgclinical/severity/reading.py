"""Gather a report's statements into findings, one a side, and denials."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rrgclinical.labels import ClassId
from rrgclinical.rules import says_normal
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPT_ID, CONCEPTS, LUNG, PLAIN
from rrgclinical.rules.cues import SEVERITIES, SIDES, ZONES
from rrgclinical.rules.details import read_details
from rrgclinical.rules.sentences import split_plain

LEFT, RIGHT, BOTH = 1, 2, 3
WRONG_TIP = 2
_CACHE_SENTENCES = 1 << 16
_PNEUMOTHORAX = CONCEPT_ID["pneumothorax"]
_MIDDLE = r"(?:mediastin\w*|midline|trache\w*|heart)"
_TENSION = re.compile(
    rf"\btension\b|\b{_MIDDLE}\s+(?:structures?\s+)?(?:is\s+|are\s+)?(?:shift|displace|deviat)"
    rf"|\b(?:shift(?:ing)?|displacement|deviation)\s+of\s+(?:the\s+)?{_MIDDLE}"
    rf"|\b(?:left|right)ward\s+(?:{_MIDDLE}\s+)?(?:shift|displacement|deviation)",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:no|not|without|nor|neither|absent|negative\s+for)\b"
    r"(?:(?!\b(?:but|with)\b)[^.;:])*\Z",
    re.IGNORECASE,
)
_DENIED_BEHIND = re.compile(
    r"\w*(?:\s+\w+){0,3}?\s+(?:(?:is|are|was|were)\s+(?:not|absent)|(?:is|are|was|were)n't)\b"
    r"|\w*\s*:?\s*(?:none|absent)\b",
    re.IGNORECASE,
)


class SidedFinding(NamedTuple):
    """A finding that a report affirms or suspects, on one side.

    side, zones, severity: indices into SIDES, ZONES and SEVERITIES. change, size, tip: as in
    `Entities`. paired: the other side has it too. side_said: False where the other report names
    both sides and this one none. contradicted: it is called small and large, or better and worse.
    """

    concept: int
    side: int
    doubt: bool
    zones: frozenset[int] = frozenset()
    severity: int = 0
    change: int = 0
    size: float = 0.0
    tip: int = 0
    tension: bool = False
    paired: bool = False
    side_said: bool = True
    contradicted: bool = False

    def name(self) -> str:
        """The finding in words, as "suspected small left lower pleural effusion"."""
        zone = " and ".join(ZONES[zone] for zone in sorted(self.zones))
        tension = "tension" if self.tension else ""
        name = CONCEPTS[self.concept].name
        words = (SEVERITIES[self.severity], SIDES[self.side], zone, tension, name)
        return " ".join(filter(None, ("suspected" if self.doubt else "", *words)))


class ReportReading(NamedTuple):
    """A text as read: findings by (concept, side), sides denied by concept.

    repeated: share of the sentences that were said before. words: how many. silent: no finding is
    told of, and nothing called normal.
    """

    present: dict[tuple[int, int], SidedFinding]
    denied: dict[int, frozenset[int]]
    repeated: float
    words: int
    silent: bool


def read(text: str) -> ReportReading:
    """Gather the statements of a report; the same text gives an equal reading."""
    present: dict[tuple[int, int], SidedFinding] = {}
    denied: dict[int, frozenset[int]] = {}
    text, spans = split_plain(text)
    distinct = set()
    for start, end in spans:
        sentence = text[start:end]
        affirmed, negative, plain = _statements(sentence)
        distinct.add(plain)
        for finding in affirmed:
            key = finding[:2]
            before = present.get(key)
            present[key] = finding if before is None else _merged(before, finding)
        for concept, sides in negative:
            denied[concept] = denied[concept] | sides if concept in denied else sides
    sided = {key[0] for key in present if key[1]}
    if sided:
        _settle(present, sided)
    repeated = 1.0 - len(distinct) / len(spans) if spans else 0.0
    silent = not (present or denied or any(says_normal(text[a:b]) for a, b in spans))
    return ReportReading(present, denied, repeated, len(text.split()), silent)


@lru_cache(maxsize=_CACHE_SENTENCES)
def _statements(
    sentence: str,
) -> tuple[tuple[SidedFinding, ...], tuple[tuple[int, frozenset[int]], ...], str]:
    """The findings and denials of a sentence, and its plain text."""
    affirmed, negative = [], []
    for mention, said in zip(read_sentence(sentence), read_details(sentence), strict=True):
        concept = CONCEPTS[mention.concept]
        if concept.anatomy:
            continue
        side = mention.side if concept.layout != PLAIN else 0
        sides = (LEFT, RIGHT) if side == BOTH else (side,)
        if mention.status == ClassId.NEGATIVE:
            negative.append((mention.concept, frozenset(sides)))
            continue
        zone = mention.zone if concept.layout == LUNG else 0
        affirmed += [
            SidedFinding(
                mention.concept,
                side,
                mention.status == ClassId.UNCERTAIN,
                frozenset({zone} if zone else ()),
                mention.severity,
                *said,
                mention.concept == _PNEUMOTHORAX and _is_tense(sentence),
            )
            for side in sides
        ]
    return tuple(affirmed), tuple(negative), " ".join(sentence.strip(" .\n").lower().split())


def _is_tense(sentence: str) -> bool:
    """True where tension or a shift is said, and not denied."""
    return any(
        not _DENIED.search(sentence, 0, m.start()) and not _DENIED_BEHIND.match(sentence, m.end())
        for m in _TENSION.finditer(sentence)
    )


def _merged(first: SidedFinding, second: SidedFinding) -> SidedFinding:
    """Join two statements of one finding, in any order; where they differ the graver holds."""
    return _joined(first, second)._replace(
        severity=max(first.severity, second.severity),
        change=max(first.change, second.change),
        size=max(first.size, second.size),
        tip=max(first.tip, second.tip),
    )


def _joined(first: SidedFinding, second: SidedFinding) -> SidedFinding:
    """Join two statements of one finding; where they differ the first holds, contradicted."""
    graded, changed = {first.severity, second.severity}, {first.change, second.change}
    return first._replace(
        doubt=first.doubt and second.doubt,
        zones=first.zones | second.zones,
        severity=first.severity or second.severity,
        change=first.change or second.change,
        size=first.size or second.size,
        tip=first.tip or second.tip,
        tension=first.tension or second.tension,
        contradicted=first.contradicted or second.contradicted or {1, 3} in (graded, changed),
    )


def _settle(present: dict[tuple[int, int], SidedFinding], sided: set[int]) -> None:
    """Give to the sides what is said again without one, and mark findings of both sides."""
    for concept in sorted(sided):
        again = present.pop((concept, 0), None)
        sides = [side for side in (LEFT, RIGHT) if (concept, side) in present]
        for side in sides:
            finding = present[concept, side]
            if again is not None:
                finding = _joined(finding, again)
            present[concept, side] = finding._replace(paired=True) if len(sides) == 2 else finding
