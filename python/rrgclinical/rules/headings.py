"""Headings of one sentence: findings before a colon that what follows denies or tells of."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from rrgclinical.labels import ClassId
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import Event
from rrgclinical.rules.lookaround import ATTRIBUTES
from rrgclinical.rules.mention import Draft

_NAMES = frozenset({Cue.FINDING, Cue.AND, Cue.OR, Cue.COMMA, *ATTRIBUTES})
_MARKS = frozenset({Cue.COMMA, Cue.DASH, Cue.BREAK})
_DENIALS = frozenset({Cue.NEGATE, Cue.NEGATE_NEXT})
_SILENT = frozenset({Cue.BREAK, Cue.IDLE, Cue.COLON, Cue.DASH})


class Heading(NamedTuple):
    """Events `[first, colon)` that name findings alone; the colon or dash is at `colon`."""

    first: int
    colon: int


def find_heading(events: Sequence[Event], colon: int) -> Heading | None:
    """The heading that ends at `colon`, which opens the sentence or comes after a mark."""
    first = colon
    while first and events[first - 1].cues & _NAMES:
        first -= 1
    named = any(Cue.FINDING in event.cues for event in events[first:colon])
    begins = not first or (bool(events[first - 1].cues & _MARKS) and _is_mark(events[first - 1]))
    begins |= Cue.COMMA in events[first].cues
    return Heading(first, colon) if named and begins else None


def settle(
    headings: Sequence[Heading], drafts: Sequence[Draft], events: Sequence[Event]
) -> list[Draft]:
    """The drafts left once what follows each heading has told of its findings.

    A finding told of again goes ("Effusion: No effusion."); one that is only denied is negative
    ("Effusion: No.", "Consolidation: The lungs are clear.").
    """
    if not headings:
        return list(drafts)
    gone: set[int] = set()
    ordered = sorted(range(len(drafts)), key=lambda index: drafts[index].start)
    starts = [drafts[index].start for index in ordered]
    for number, heading in enumerate(headings):
        ends = headings[number + 1].first if number + 1 < len(headings) else len(events) - 1
        begin, colon, end = (events[at].start for at in (heading.first, heading.colon, ends))
        first, parted, last = (bisect_left(starts, at) for at in (begin, colon, end))
        behind = [drafts[index] for index in ordered[parted:last]]
        told = [draft for draft in behind if draft.status != ClassId.BLANK]
        denied = all(draft.status == ClassId.NEGATIVE for draft in told) and _denies(
            events, range(heading.colon + 1, ends), bool(told)
        )
        named = {draft.concept for draft in told}
        columns = {column for concept in named for column in CONCEPTS[concept].states}
        for index in ordered[first:parted]:
            draft = drafts[index]
            if draft.status != ClassId.POSITIVE:
                continue
            if draft.concept in named or columns.intersection(CONCEPTS[draft.concept].states):
                gone.add(index)
            elif denied and not (told and draft.attributes):
                draft.status = ClassId.NEGATIVE
    return [draft for index, draft in enumerate(drafts) if index not in gone]


def _denies(events: Sequence[Event], places: range, told: bool) -> bool:
    """True when the events at `places` open with a denial.

    Or with a structure, where `told` says that something is said of it.
    """
    for event in (events[place] for place in places):
        cues = event.cues
        if cues & _DENIALS:
            return True
        if Cue.SUBJECT in cues:
            return told
        if Cue.PREDICATE in cues:
            return "normal" in (role.value for role in event.roles)
        if not cues <= _SILENT:
            return False
    return False


def _is_mark(event: Event) -> bool:
    return event.end - event.start <= 2  # a dash or bullet, no "but" or "there is"
