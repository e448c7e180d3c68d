"""Keep what a sentence has said so far, and how far cues look back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rrgclinical.labels import SUPPORT_DEVICES, ClassId
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.headings import Heading
from rrgclinical.rules.lexicon import Event
from rrgclinical.rules.lookaround import Ahead, stands_behind_mark
from rrgclinical.rules.mention import Draft

_REACHED: dict[str, frozenset[int]] = {
    "denied": frozenset(range(len(CONCEPTS))),
    "weakened": frozenset(range(len(CONCEPTS))),
    "removed": frozenset(i for i, c in enumerate(CONCEPTS) if SUPPORT_DEVICES in c.states),
    "out of sight": frozenset(i for i, c in enumerate(CONCEPTS) if SUPPORT_DEVICES not in c.states),
    "diseases weakened": frozenset(i for i, c in enumerate(CONCEPTS) if c.disease),
}
"""The concepts that a cue of each kind reaches."""


class Told:
    """Drafts of a sentence by place; a cue reaches all from a place `low` on.

    A status never rises again, so what a cue of one kind has changed it need not visit a second
    time: each kind takes up new places when it looks and keeps those it has not reached, and a
    sentence takes linear time however many cues look back. A structure, blank, is never reached.
    """

    __slots__ = ("_places", "_taken", "_unreached", "drafts")

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._places: list[int] = []
        self._unreached: dict[str, list[int]] = {}
        self._taken: dict[str, int] = {}

    def add(self, draft: Draft) -> None:
        """Put `draft` behind the others."""
        if draft.status != ClassId.BLANK:
            self._places.append(len(self.drafts))
        self.drafts.append(draft)

    def since(self, low: int) -> bool:
        """True when a finding stands at `low` or behind it."""
        return bool(self._places) and self._places[-1] >= low

    def last(self, low: int = 0) -> Draft | None:
        """The last finding, if it stands at `low` or behind it."""
        return self.drafts[self._places[-1]] if self.since(low) else None

    def deny(self, low: int, kind: str = "denied", status: int = ClassId.NEGATIVE) -> None:
        """Give findings from `low` on a status: all, those "removed" or "out of sight"."""
        for draft in self._reach(kind, low):
            draft.status = status

    def weaken(self, low: int, kind: str = "weakened") -> None:
        """Make positive findings from `low` on uncertain: all, or "diseases weakened"."""
        for draft in self._reach(kind, low):
            if draft.status == ClassId.POSITIVE:
                draft.status = ClassId.UNCERTAIN

    def forget(self, low: int) -> None:
        """Assert nothing of the findings from `low` on."""
        while self.since(low):
            self.drafts[self._places.pop()].status = ClassId.BLANK

    def _reach(self, kind: str, low: int) -> Iterator[Draft]:
        places, concepts = self._unreached.setdefault(kind, []), _REACHED[kind]
        for place in range(self._taken.get(kind, 0), len(self.drafts)):
            if self.drafts[place].concept in concepts:
                places.append(place)
        self._taken[kind] = len(self.drafts)
        while places and places[-1] >= low:
            draft = self.drafts[places.pop()]
            if draft.status != ClassId.BLANK:
                yield draft


@dataclass(slots=True, eq=False)
class Statement:
    """Hold what is open at an event of a sentence; `record` has what was told.

    `negate`, `doubt`, `unasserted` hold for findings to come, and `negate_until` for those up to a
    token; `doubted` is where the doubt began, `advice` says that an examination is asked for,
    `history` that the whole statement tells of the patient, `headed` that a heading says so.
    `clause`, `comma`, `before` (the comma before that), `segment` (the last of comma and "and") and
    `split` (an "and" behind a verb, a subordinate clause) are where, among the drafts, a cue that
    looks back stops; `joined` says that an "and" or "or" carries it past the comma, `aside` that
    nothing was named between the last two. `turned` is where the last denial ended, `undone` and
    `inverted` are tokens of a denial that is undone and of the verb behind which one begins,
    `excepted` is the status that an exception before its denial gives, `named_last` the last
    finding named, `examined` says that an examination of something that is there is asked for.
    `finding`, `verb`, `parted` (a comma or "with"), `joint` (an "and"), `tip` (of a device),
    `denial` and `last_or` (an "or" between what it denies) are the tokens where the last of each
    began. `within` says that the denial stands inside the subject of a clause, `pool_before` how
    many attributes came before it. `headings` are findings before a colon. `pending` are predicates
    waiting for structures. `pool` are attributes not yet given; they go to the next finding or,
    `after` a preposition, to the `anchor` before it.
    """

    events: list[Event]
    sentence: str
    ahead: Ahead = field(init=False)
    record: Told = field(init=False)
    drafts: list[Draft] = field(init=False)
    negate: bool = False
    doubt: bool = False
    unasserted: bool = False
    advice: bool = False
    history: bool = False
    headed: bool = False
    negate_until: int = -1
    doubted: int = -1
    finding: int = -1
    verb: int = -1
    parted: int = -1
    joint: int = -1
    denial: int = -1
    last_or: int = -1
    tip: int = -1
    within: bool = False
    pool_before: int = 0
    headings: list[Heading] = field(default_factory=list)
    clause: int = 0
    comma: int = 0
    before: int = 0
    split: int = 0
    segment: int = 0
    turned: int = -1
    undone: int = -1
    inverted: int = -1
    examined: bool = False
    excepted: int = ClassId.BLANK
    named_last: Draft | None = None
    joined: bool = False
    aside: bool = False
    versus: int | None = None
    pending: list[tuple[str, Event]] = field(default_factory=list)
    pool: list[tuple[Cue, int]] = field(default_factory=list)
    pool_end: int = -1
    anchor: Draft | None = None
    after: bool = False
    preposition: Event | None = None

    def __post_init__(self) -> None:
        self.ahead, self.record = Ahead(self.events), Told()
        self.drafts = self.record.drafts

    def _status(self, event: Event) -> int:
        if self.negate or event.first <= self.negate_until:
            return ClassId.NEGATIVE
        return ClassId.UNCERTAIN if self.doubt else ClassId.POSITIVE

    # How far, among the drafts, a cue looks back.

    def _reach(self) -> int:
        low = self.clause if self.joined else max(self.clause, self.comma)
        return self.split if low < self.split < len(self.drafts) else low

    def _reach_back(self) -> int:
        """What `_reach` finds, past an aside that names nothing ("X, seen on CT, is gone")."""
        aside = self.aside and self.comma == len(self.drafts)
        return self._reach_over_comma() if aside else self._reach()

    def _reach_over_comma(self) -> int:
        """What `_reach` finds or, where a comma parts cue and finding, what stands before it."""
        low = self._reach()
        return low if self.record.since(low) else max(self.clause, self.before)

    def _reach_behind_mark(self, index: int) -> int:
        """What `_reach_back` finds, or what a comma right before the cue parts from it."""
        behind = stands_behind_mark(self.events, index)
        return self._reach_over_comma() if behind else self._reach_back()

    def _again(self, event: Event, status: int | None = None) -> None:
        """Name the finding that was denied before once more: another side or size of it."""
        told = self.record.last()
        if self.unasserted or told is None or told.status != ClassId.NEGATIVE:
            return
        status = self._status(event) if status is None else status
        self.anchor = Draft(told.concept, status, event.start, event.end, self.pool)
        self.finding, self.pool, self.after = event.first, [], False
        self.record.add(self.anchor)

    def _settle_versus(self, draft: Draft) -> None:
        if self.versus is not None and draft.status == ClassId.POSITIVE:
            draft.status = ClassId.UNCERTAIN
        self.versus = None

    def _place(self) -> None:
        if self.after and self.anchor is not None:
            self.anchor.attributes.extend(self.pool)
            self.pool = []
        self.after = False

    def _flush(self) -> None:
        self.after = True
        self._place()
