"""Decide what a comma opens, and on which side of a cue its finding stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rrgclinical.labels import SUPPORT_DEVICES
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import SEVERITIES, SIDES, Cue
from rrgclinical.rules.lexicon import Event

Question = Callable[[Sequence[Event], int], bool | None]

_LARGE = SEVERITIES.index("large")
ONE_SIDE = (SIDES.index("left"), SIDES.index("right"))
_FAR = 32
"""Events that a cue is looked for behind or before another; no statement holds as many."""

_CHAMBER = re.compile(
    r"[\s-]+(?:ventric|atri(?:al|um|a)\b|brachiocephalic|innominate|(?:lateral\s+)?decubitus"
    r"|(?:anterior|posterior)\s+oblique)",
    re.IGNORECASE,
)
_TOWARDS_FAR = 60
"""Characters before a side that are looked through."""
_TOWARDS = re.compile(
    r"(?:\b(?:shift|displac|deviat|push)\w*(?:\s+\w+){0,4}?\s+(?:to|towards?)"
    r"|\bcompared\s+(?:to|with)|\bnone\s+(?:on|in|at))\s+(?:the\s+)?\Z",
    re.IGNORECASE,
)
DOUBTS = frozenset({Cue.DOUBT, Cue.DOUBT_EITHER, Cue.DOUBTED_AT_END, Cue.SETTING, Cue.CHANCE})
_OPENERS = frozenset({Cue.ASSERT, Cue.AFFIRM, Cue.NEGATE, Cue.NEGATE_EITHER, Cue.BREAK, *DOUBTS})
ATTRIBUTES = frozenset({Cue.SIDE, Cue.ZONE, Cue.SEVERITY})
_PLACES = frozenset({Cue.SIDE, Cue.ZONE})
_SEGMENT_ENDS = frozenset(
    {Cue.COMMA, Cue.DASH, Cue.COLON, Cue.BREAK, Cue.RESET, Cue.SUBORDINATE, Cue.WHICH, Cue.AND}
)
ENDS = _SEGMENT_ENDS | {Cue.END}
_NOT_BETWEEN = ENDS | {Cue.NEGATE, Cue.PREDICATE}
_BETWEEN = {Cue.PREPOSITION, Cue.VERB, Cue.SUBJECT, Cue.COLON, Cue.COMMA, Cue.DASH, Cue.WHICH}
_BETWEEN |= ATTRIBUTES
_LISTED = _BETWEEN | {Cue.FINDING, Cue.AND, Cue.OR, Cue.IDLE, Cue.SUSPICIOUS}
PREDICATIONS = frozenset({Cue.FINITE, Cue.VERB, Cue.NEGATED_BEFORE, Cue.DOUBTED_BEFORE})
_ELLIPSIS = frozenset({Cue.FINITE, Cue.VERB, Cue.ASSERT, Cue.PREPOSITION, *ATTRIBUTES})
_TOLD_OF = frozenset({Cue.ASSERT, Cue.SEVERITY, Cue.NEGATE, *DOUBTS})


class Ahead:
    """Answer what comes first from an event on.

    A question is a function of events and a place that gives an answer, or None where the next
    event decides. Places are asked about from left to right, so that an answer found holds for
    all places up to the event that gave it, and each event is looked at once per question.
    """

    __slots__ = ("_found", "events")

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._found: dict[Question, tuple[int, bool]] = {}

    def ask(self, question: Question, index: int) -> bool:
        """Answer `question` from the event at `index` on; False where no event does."""
        place, answer = self._found.get(question, (-1, False))
        if place < index:
            for place in range(index, len(self.events)):
                if (found := question(self.events, place)) is not None:
                    answer = found
                    break
            else:
                answer = False
            self._found[question] = place, answer
        return answer


def opens_statement(events: Sequence[Event], index: int) -> bool:
    """Tell whether the event behind a comma or "and" begins its own statement.

    It does where it grades, doubts or denies anew, and where its finding or structure has a verb
    of its own. A large or significant finding is what a list of denials names ("no consolidation,
    large effusion"), unless it has a verb or a side ("large left effusion").
    """
    cues = events[index].cues
    if cues & _OPENERS:
        return True
    subject = index
    while (named := events[subject].cues) and named <= _PLACES:
        subject += 1
    if Cue.SUBJECT in named:  # "right lung is collapsed"
        return _subject_has_verb(events, subject)
    if subject > index and Cue.VERB in named:  # "left lower lobe is collapsed"
        return _subject_has_verb(events, subject - 1)
    if Cue.SEVERITY in cues and _severity(events[index]) != _LARGE:
        return True
    return _finding_stands_alone(events, index)


def ends_with_placed(events: Sequence[Event], index: int) -> bool:
    """Tell whether a finding by its place, no large one, ends a list ("left effusion")."""
    placed = False
    while events[index].cues <= ATTRIBUTES:
        if _severity(events[index]) == _LARGE:
            return False
        placed |= bool(events[index].cues & _PLACES)
        index += 1
    if not placed or Cue.FINDING not in events[index].cues:
        return False
    while not (cues := events[index].cues) & ENDS:
        index += 1
    if Cue.BREAK in cues and Cue.OR in events[index + 1].cues:
        return False  # "left effusion; or mass"
    return not cues & {Cue.COMMA, Cue.DASH, Cue.AND} or opens_statement(events, index + 1)


def or_follows(events: Sequence[Event], index: int) -> bool | None:
    """Ask `Ahead`: does an "or" come before another denial or clause?"""
    deciding = events[index].cues & {Cue.OR, Cue.BREAK, Cue.NEGATE}
    return Cue.OR in deciding if deciding else None


def goes_on(events: Sequence[Event], index: int) -> bool | None:
    """Ask `Ahead`: do semicolons part but names, with an "or" behind the last of them?"""
    cues = events[index].cues
    if Cue.BREAK in cues and events[index].end - events[index].start == 1:
        return True if Cue.OR in events[index + 1].cues else None
    return None if cues & ATTRIBUTES or cues <= _LISTED else False


def advice_follows(events: Sequence[Event], index: int) -> bool | None:
    """Ask `Ahead`: is an examination asked for before the next clause?"""
    cues = events[index].cues
    return True if Cue.ADVICE in cues else False if Cue.BREAK in cues else None


def is_of_another(side: Event, sentence: str) -> bool:
    """True for the side of a chamber or view, compared with, or shifted to."""
    if _CHAMBER.match(sentence, side.end):
        return True
    return _TOWARDS.search(sentence, max(0, side.start - _TOWARDS_FAR), side.start) is not None


def looks_back(ahead: Ahead, index: int) -> bool:
    """Tell whether a cue applies to a finding before it ("effusion suspected").

    It does where no finding or structure follows in its segment and one stands before it, with
    nothing but its place, a verb or a comma between.
    """
    if ahead.ask(_names_more, index + 1):
        return False
    for place in range(index - 1, max(-1, index - 1 - _FAR), -1):
        cues = ahead.events[place].cues
        if cues & {Cue.FINDING, Cue.PREDICATE}:
            return True
        if not cues & _BETWEEN:
            return False
    return False


def _names_more(events: Sequence[Event], index: int) -> bool | None:
    cues = events[index].cues
    if cues & {Cue.FINDING, Cue.SUBJECT}:
        return True
    return False if cues & _SEGMENT_ENDS else None


def verb_of_denied(events: Sequence[Event], index: int) -> int:
    """Find the verb between a denial and its finding; -1 where there is none.

    "Not seen is the effusion". The denial holds from the verb on: "cleared since yesterday is".
    """
    verb = -1
    for place in range(index + 1, min(len(events), index + 1 + _FAR)):
        cues = events[place].cues
        if Cue.FINDING in cues:
            return verb
        if verb < 0 and Cue.VERB in cues:
            verb = place
        elif cues & _NOT_BETWEEN and not cues & ATTRIBUTES and cues != {Cue.SUBORDINATE}:
            return -1
    return -1


def denial_behind(events: Sequence[Event], index: int) -> Event | None:
    """Find what denies a finding named behind `index` in its clause ("that X has cleared")."""
    named = False
    for event in events[index + 1 : index + 1 + _FAR]:
        cues = event.cues
        if Cue.NEGATED_BEFORE in cues or Cue.NEGATE_EITHER in cues:
            return event if named else None
        if cues & {Cue.END, Cue.COMMA, Cue.BREAK, Cue.WHICH, Cue.OR, Cue.AND}:
            return None
        named |= Cue.FINDING in cues
    return None


def ends_sentence(events: Sequence[Event], index: int) -> bool:
    """True when nothing that tells of a finding follows in the clause."""
    for event in events[index + 1 : index + 1 + _FAR]:
        cues = event.cues
        # a semicolon breaks off, no "but"
        if cues & {Cue.END} or (Cue.BREAK in cues and event.end - event.start == 1):
            return True
        if not cues & {Cue.SUBJECT, Cue.ADVICE, Cue.PREPOSITION}:
            return False
    return False


def stands_behind_mark(events: Sequence[Event], index: int) -> bool:
    """True for a cue alone between a comma, dash or colon and a statement's end."""
    follower = events[index + 1]
    if not index or follower.first != events[index].last:
        return False
    if not events[index - 1].cues & {Cue.COMMA, Cue.DASH, Cue.COLON}:
        return False
    return bool(follower.cues & {Cue.COMMA, Cue.DASH, Cue.END, Cue.BREAK})


def is_aside(events: Sequence[Event], index: int) -> bool:
    """True for a cue between commas that speaks of what follows ("or, likely, X")."""
    if not index or Cue.COMMA not in events[index - 1].cues & events[index + 1].cues:
        return False
    if index < 2 or Cue.FINDING not in events[index - 2].cues:
        return True
    return bool(events[min(index + 2, len(events) - 1)].cues & {Cue.FINDING, *ATTRIBUTES})


def graded_by(events: Sequence[Event], index: int, source: Event) -> bool:
    """True when only attributes stand between `source` and the event at `index`."""
    place = index
    while place and events[place - 1].last == events[place].first and index - place < _FAR:
        place -= 1
        if events[place] is source:
            return True
        if not events[place].cues & ATTRIBUTES:
            return False
    return False


def ends_segment(events: Sequence[Event], index: int) -> bool:
    """True when the event at `index` closes its segment and is no aside."""
    follower = events[index + 1]
    if is_aside(events, index):
        return False  # "edema or, less likely, pneumonia"
    return follower.first == events[index].last and bool(follower.cues & (ENDS - {Cue.COLON}))


def precedes_noun(events: Sequence[Event], index: int) -> bool | None:
    """Ask `Ahead`: do predicates stand before their noun ("enlarged and tortuous aorta")?"""
    cues = events[index].cues
    if cues & {Cue.FINDING, Cue.SUBJECT}:
        return Cue.COMMA not in events[index - 1].cues
    listed = cues & {Cue.PREDICATE, Cue.AND, Cue.COMMA, Cue.ASSERT, *ATTRIBUTES}
    return None if listed else False


def coordinated(events: Sequence[Event], index: int) -> bool:
    """True when an "and" joins the words just before it to the event at `index`."""
    if index < 2 or Cue.AND not in events[index - 1].cues:
        return False
    before, joint, event = events[index - 2 : index + 1]
    return before.last == joint.first and joint.last == event.first


def names_finding(events: Sequence[Event], index: int) -> bool | None:
    """Ask `Ahead`: does a finding with an observation, no device, follow in the segment?"""
    if events[index].cues & {Cue.COMMA, Cue.BREAK}:
        return False
    for role in events[index].roles:
        if role.cue == Cue.FINDING:
            columns = CONCEPTS[role.value].states + CONCEPTS[role.value].suggests
            if columns and SUPPORT_DEVICES not in columns:
                return True
    return None


def names_other(events: Sequence[Event], index: int) -> bool:
    """True when the words from the last comma to `index` name more than a place.

    Not so where a finding stands among them: that one is meant ("mass with a shadow versus ..."),
    unless it is a device, of which its place is told.
    """
    behind, other = events[index], False
    for place in range(index - 1, max(-1, index - 1 - _FAR), -1):
        event = events[place]
        cues = event.cues
        if Cue.FINDING in cues:
            named = (CONCEPTS[role.value] for role in event.roles if role.cue == Cue.FINDING)
            return any(SUPPORT_DEVICES in concept.states for concept in named)
        other |= event.last < behind.first  # a word of no table
        if Cue.COMMA in cues:
            break
        other |= not cues & _PLACES and Cue.PREPOSITION not in cues
        behind = event
    return other


def stands_for_finding(events: Sequence[Event], index: int) -> bool:
    """True for a pronoun beside an attribute or place: "a small one", "those in"."""
    event, behind = events[index], events[index + 1]
    if behind.first == event.last and Cue.PREPOSITION in behind.cues:
        return True
    if index == 0 or events[index - 1].last != event.first:
        return False
    return bool(events[index - 1].cues & {Cue.ASSERT, *ATTRIBUTES})


def leaves_out_finding(events: Sequence[Event], index: int, sentence: str) -> bool:
    """True where the words behind an "and" say that one side is there.

    Or behind a "but" or a comma. The finding is the one before: "has cleared on the right but
    persists on the left", "has resolved and the left is unchanged". Any other word may be another
    finding's ("stable left hilum"), so none but "the" stands between these.
    """
    sided = there = placed = False
    before = events[index]
    for place in range(index + 1, len(events)):
        event = events[place]
        cues = event.cues
        ends = not cues.isdisjoint(ENDS)
        if not (ends or Cue.ASSERT in cues or cues <= _ELLIPSIS):
            return False
        between = sentence[before.end : event.start].strip(" .").lower()
        if between and not (between == "the" and cues & _PLACES):
            return False
        if ends:
            return sided and there
        if Cue.SIDE in cues and there and not placed:
            return False  # "stable left ..."
        sided |= Cue.SIDE in cues
        placed |= Cue.PREPOSITION in cues
        there |= Cue.ASSERT in cues or (Cue.VERB in cues and Cue.FINITE not in cues)
        before = event
    return False


def _subject_has_verb(events: Sequence[Event], index: int) -> bool:
    ahead = [event.cues for event in events[index + 1 : index + 6]]
    for cues, then in zip(ahead[:4], [*ahead[1:], frozenset()], strict=False):
        if Cue.PREDICATE in cues:
            return True
        if Cue.VERB in cues:
            return Cue.VERB not in then  # "are seen" says no more than that they are there
        if Cue.FINDING in cues:
            return False
    return False


def _finding_stands_alone(events: Sequence[Event], index: int) -> bool:
    large = sided = False
    while index < len(events) and Cue.FINDING not in (cues := events[index].cues):
        if not cues & ATTRIBUTES:
            return False
        large |= _severity(events[index]) == _LARGE
        sided |= any(
            role.cue == Cue.SIDE and role.value in ONE_SIDE for role in events[index].roles
        )
        index += 1
    if large and sided:
        return True
    for place in range(index + 1, len(events)):
        cues = events[place].cues
        if Cue.COLON in cues:
            return True
        if cues & _SEGMENT_ENDS or cues & {Cue.OR, Cue.VERSUS}:
            return False
        if cues & {Cue.ASSERT, Cue.DOUBTED_BEFORE, Cue.DOUBTED_AT_END}:
            return True
        if Cue.FINITE in cues:
            # "is seen" closes a list; "is unchanged", "is seen in the left base", "suggests
            # scarring" tell of one finding.
            doubts = bool(cues & DOUBTS)
            rest = [event.cues for event in events[place + 1 : place + 4]]
            then, preposition, where = [*rest, *[frozenset()] * 3][:3]
            placed = Cue.VERB in then and Cue.PREPOSITION in preposition and bool(where & _PLACES)
            return large or doubts or placed or bool(then & _TOLD_OF)
        if cues & {Cue.FINDING, Cue.NEGATED_BEFORE, Cue.VERB}:
            return False
    return False


def _severity(event: Event) -> int | None:
    return next((role.value for role in event.roles if role.cue == Cue.SEVERITY), None)
