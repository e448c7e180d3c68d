"""Headings of one sentence: findings before a colon that what follows denies or tells of.

And exceptions, as "no effusion except on the left".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from rrgclinical.labels import ClassId
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import Event
from rrgclinical.rules.lookaround import ATTRIBUTES, DOUBTS, ENDS
from rrgclinical.rules.mention import Draft

_NAMES = frozenset({Cue.FINDING, Cue.AND, Cue.OR, Cue.COMMA, *ATTRIBUTES})
_MARKS = frozenset({Cue.COMMA, Cue.DASH, Cue.BREAK})
_DENIALS = frozenset({Cue.NEGATE, Cue.NEGATE_NEXT})
_OF_LIST = frozenset({Cue.NEGATE, Cue.UNASSERTED, Cue.PURPOSE, *DOUBTS})
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
    mark = events[first - 1]  # a dash or bullet, no "but" or "there is"
    begins = not first or (bool(mark.cues & _MARKS) and mark.end - mark.start <= 2)
    begins |= Cue.COMMA in events[first].cues
    named &= Cue.OR not in events[colon + 1].cues  # "no effusion -- mass -- or edema"
    return Heading(first, colon) if named and begins else None


def answers(events: Sequence[Event], index: int) -> bool:
    """True where the mark before a denial is a finding's colon ("evidence of edema: no")."""
    place = 0 if Cue.COMMA in events[index - 1].cues else index - 1
    while place and events[place - 1].last == events[place].first:
        place -= 1
        if events[place].cues & {Cue.FINDING, Cue.ASSERT}:
            return Cue.FINDING in events[place].cues
    return False


def opens_list(events: Sequence[Event], index: int) -> bool:
    """True for a colon right behind a denial, doubt or question ("no evidence of: ...")."""
    if not index or events[index - 1].last != events[index].first:
        return False
    before = events[index - 1 - (index > 1 and events[index - 1].cues == {Cue.PREPOSITION})]
    return bool(before.cues & _OF_LIST) and before.end - before.start > 1


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
        # a dash may be an aside: "opacities -- no effusion" denies the one finding alone
        families = {CONCEPTS[concept].family for concept in named}
        aside = bool(told) and Cue.DASH in events[heading.colon].cues
        for index in ordered[first:parted]:
            draft = drafts[index]
            if draft.status != ClassId.POSITIVE:
                continue
            if draft.concept in named or columns.intersection(CONCEPTS[draft.concept].states):
                gone.add(index)
            elif aside and CONCEPTS[draft.concept].family not in families:
                continue
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


_TOLD = frozenset({Cue.ASSERT, Cue.PREPOSITION, Cue.PRONOUN, Cue.SUBJECT, Cue.VERB, Cue.FINITE})
# An amount, and words that name nothing; another word may be another finding's.
_AMOUNTS = (
    "amount amounts bit hint little sliver pocket component remnant residual residue residuum"
    " rim layer quantity volume patch area areas focus foci spot streak trickle touch"
    " suggestion strip portion region side sides lobe"
)
_FILLERS = (
    "a an the for some very what may be this that its only just perhaps about mere most seen"
    " there is was and or apparent new single solitary few isolated focal localized patchy"
    " thin rather laterally medially posteriorly anteriorly inferiorly superiorly apically"
    " basally peripherally centrally posterior anterior lateral medial dependent dependently"
)
_WORD = re.compile(r"[^\W_]+")


def read_exception(events: Sequence[Event], index: int, sentence: str) -> int:
    """The status that the exception cue at `index` gives a finding denied before it.

    BLANK where its words name another finding, or nothing: they then say nothing of the denied one.
    """
    placed, amounts = False, frozenset(_AMOUNTS.split())
    allowed = amounts.union(_FILLERS.split())
    doubtful = "possible" in sentence[events[index].start : events[index].end].lower()
    before = events[index]
    for place in range(index + 1, len(events)):
        event = events[place]
        words = _WORD.findall(sentence[before.end : event.start].lower())
        if not allowed.issuperset(words):
            return ClassId.BLANK
        placed |= not amounts.isdisjoint(words)
        cues = event.cues
        if cues & ENDS:
            break
        if cues & ATTRIBUTES or Cue.PRONOUN in cues:
            placed = True
        elif cues & DOUBTS:
            doubtful = True
        elif not cues <= _TOLD:
            return ClassId.BLANK
        placed |= Cue.SUBJECT in cues
        before = event
    if not placed:
        return ClassId.BLANK
    return ClassId.UNCERTAIN if doubtful else ClassId.POSITIVE
